"""A drill: what happened when a checkpoint was brought back where it can do no harm.

Everything goes through an archive into a scratch store, so that what is tried is what another
machine would get, and nothing of it touches the subject.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.drill.scratch import Scratch, Trial
from holdfast.drill.session import try_session
from holdfast.drill.state import try_state
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import HoldfastError
from holdfast.model.subject import Kind
from holdfast.store import Store, open_store

_TRIALS: dict[Kind, Callable[[Scratch], Awaitable[Trial]]] = {
    "state": try_state,
    "session": try_session,
}
# Why nothing more than reading is tried.
_READ_ONLY: dict[Kind, str] = {
    "sandbox": "its bytes were read; only the engine that froze it can bring it back",
    "container": "its bytes were read; only its node's runtime can bring it back",
    "bundle": "its members' bytes were read; drill the members' own checkpoints",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """What came of it. `problems` are reasons not to rely on the checkpoint."""

    checkpoint: Checkpoint
    tried: bool  # brought back for real, and not only read
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    items: int = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def ok(self) -> bool:
        return not self.problems


async def drill(
    store: Store, checkpoint: Checkpoint, *, trust: bool = False, folder: Path | None = None
) -> Drill:
    """Bring a checkpoint back in a scratch place, below `folder`, and compare.

    What goes wrong is in the result; nothing is raised for it.
    """
    began = time.monotonic()
    kind = checkpoint.subject.kind
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-drill-", dir=folder) as place:
            found = await _try(store, checkpoint, trust, Path(place))
    except HoldfastError as error:
        found = Trial(problems=(str(error),))
    return Drill(
        checkpoint=checkpoint,
        tried=kind in _TRIALS,
        problems=found.problems,
        notes=(*found.notes, *([_READ_ONLY[kind]] if kind in _READ_ONLY else [])),
        items=found.items,
        seconds=time.monotonic() - began,
    )


async def _try(store: Store, checkpoint: Checkpoint, trust: bool, place: Path) -> Trial:
    archive = place / "checkpoint.holdfast"
    await asyncio.to_thread(store.export, checkpoint, archive)
    with open_store(place / "store") as elsewhere:
        arrived = await asyncio.to_thread(elsewhere.import_, archive, trust=trust)
        trial = _TRIALS.get(checkpoint.subject.kind)
        if trial is None:
            parts = (await asyncio.to_thread(elsewhere.show, arrived)).parts
            return Trial(items=len(parts))
        return await trial(Scratch(elsewhere, arrived, archive, trust))
