"""An application's state: it is loaded, and what is written again is compared."""

from __future__ import annotations

import asyncio

from holdfast.drill.scratch import Scratch, Trial
from holdfast.model.errors import HoldfastError
from holdfast.state import StateManager


async def try_state(scratch: Scratch) -> Trial:
    """Load it as a manager would, and keep it again."""
    return await asyncio.to_thread(_try, scratch)


def _try(scratch: Scratch) -> Trial:
    store, name = scratch.store, scratch.checkpoint.subject.name
    store.restore(scratch.checkpoint, trust=scratch.trust)
    try:
        manager = StateManager.load(name, store=store)
    except HoldfastError as error:
        return Trial(problems=(f"it cannot be loaded: {error}",))
    notes = tuple(f"{item.name}: {item.reason}" for item in manager.report.items)
    again = manager.checkpoint("drill")
    changes = manager.diff(scratch.checkpoint.id, again)
    problems = tuple(f"{change.path} is not what it was" for change in changes)
    return Trial(problems=problems, notes=notes, items=len(manager.state_data))
