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

from holdfast.drill.bundle import try_bundle
from holdfast.drill.container import try_container
from holdfast.drill.sandbox import try_sandbox
from holdfast.drill.scratch import Scratch, Trial
from holdfast.drill.session import try_session
from holdfast.drill.state import try_state
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import HoldfastError
from holdfast.model.subject import Kind
from holdfast.model.tracing import span
from holdfast.store import Store, open_store


async def _try_bundle(scratch: Scratch) -> Trial:
    return await try_bundle(scratch, lambda member: _TRIALS[member.checkpoint.subject.kind](member))


_TRIALS: dict[Kind, Callable[[Scratch], Awaitable[Trial]]] = {
    "state": try_state,
    "session": try_session,
    "sandbox": try_sandbox,
    "container": try_container,
    "bundle": _try_bundle,
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
    try:
        with (
            span("drill", subject=str(checkpoint.subject)),
            tempfile.TemporaryDirectory(prefix="holdfast-drill-", dir=folder) as place,
        ):
            found = await _try(store, checkpoint, trust, Path(place))
    except HoldfastError as error:
        found = Trial(problems=(str(error),), tried=False)
    return Drill(
        checkpoint=checkpoint,
        tried=found.tried,
        problems=found.problems,
        notes=found.notes,
        items=found.items,
        seconds=time.monotonic() - began,
    )


async def _try(store: Store, checkpoint: Checkpoint, trust: bool, place: Path) -> Trial:
    archive = place / "checkpoint.holdfast"
    await asyncio.to_thread(store.export, checkpoint, archive)
    with open_store(place / "store") as elsewhere:
        arrived = await asyncio.to_thread(elsewhere.import_, archive, trust=trust)
        trial = _TRIALS[checkpoint.subject.kind]
        return await trial(Scratch(elsewhere, arrived, archive, trust))
