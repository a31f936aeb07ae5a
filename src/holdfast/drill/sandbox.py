"""A sandbox's checkpoint: it comes back in a scratch sandbox, is frozen again, and compared."""

from __future__ import annotations

import asyncio

from holdfast.drill.comparison import compared
from holdfast.drill.scratch import Scratch, Trial
from holdfast.model.errors import HoldfastError, NotFound, Unsupported
from holdfast.model.home import home
from holdfast.sandbox import keeping, owning
from holdfast.sandbox.choice import Ground, choose, sweep
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.keeping import Kept
from holdfast.sandbox.live import LiveSandbox
from holdfast.sandbox.settings import Settings
from holdfast.view.files import Layer, layer


async def try_sandbox(scratch: Scratch) -> Trial:
    """Bring it back with the engine that froze it, as far as that is here."""
    store = scratch.store
    manifest = await asyncio.to_thread(store.show, scratch.checkpoint)
    before = await asyncio.to_thread(layer, store, manifest)
    if scratch.checkpoint.subject.name.startswith(keeping.SNAPSHOTS):
        note = "it holds files and nothing that could run; they were read"
        return Trial(items=len(before.digests), notes=(note,), tried=False)
    kept = await asyncio.to_thread(keeping.read, store, scratch.checkpoint)
    runs = home() / "run"
    try:
        engine = choose(str(kept.environment.get("engine")))
        sweep(runs)  # what a drill left that was killed
        ground = Ground(runs)
    except Unsupported as why:
        return _only_read(before, why)
    fleet = Fleet(store, engine, ground.folder, Settings(warm=0))
    try:
        return await _try(scratch, fleet, kept, before)
    except (Unsupported, NotFound) as why:  # not this machine's kind, or an image that it lacks
        return _only_read(before, why)
    finally:
        await fleet.stop()
        await asyncio.to_thread(ground.release)


async def _try(scratch: Scratch, fleet: Fleet, kept: Kept, before: Layer) -> Trial:
    identity = scratch.checkpoint.subject.name
    await asyncio.to_thread(scratch.store.restore, scratch.checkpoint, trust=scratch.trust)
    fleet.check(kept)
    sandbox = await fleet.restore(identity, kept)
    try:
        problems = _processes(sandbox, kept, exact=fleet.engine.capabilities.exact_checkpoint)
        again = await fleet.freezer.checkpoint(
            sandbox,
            reason="drill",
            during_execution=fleet.engine.capabilities.during_execution,
        )
    finally:
        await fleet.exits.kill(sandbox, owning.silence)
    manifest = await asyncio.to_thread(scratch.store.show, again.checkpoint)
    after = await asyncio.to_thread(layer, scratch.store, manifest)
    differs = compared(before, after)
    # What runs on may write; what stands still has to be what it was.
    lively = bool(kept.executions)
    return Trial(
        problems=(*problems, *(() if lively else differs)),
        notes=tuple(differs) if lively else (),
        items=len(before.digests) + len(kept.executions),
    )


def _processes(sandbox: LiveSandbox, kept: Kept, *, exact: bool) -> list[str]:
    """What ran and does not run any more, where the engine brings processes back."""
    if not exact:
        return []
    there = {each.process.identity for each in sandbox.executions if each.exit is None}
    return [
        f"process {each['identity']} does not run on"
        for each in kept.executions
        if each.get("identity") not in there
    ]


def _only_read(before: Layer, why: HoldfastError) -> Trial:
    note = f"its bytes were read; it cannot be brought back here: {why}"
    return Trial(items=len(before.digests), notes=(note,), tried=False)
