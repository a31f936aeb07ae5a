"""A bundle's checkpoint: each member is made again out of the bundle alone, and drilled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.bundle import record
from holdfast.drill.scratch import Scratch, Trial


async def try_bundle(scratch: Scratch, drill: Callable[[Scratch], Awaitable[Trial]]) -> Trial:
    """What comes of all members; `drill` is how one of them is tried."""
    store, bundle = scratch.store, scratch.checkpoint
    bound = await asyncio.to_thread(record.read, store, bundle, scratch.trust)
    problems: list[str] = []
    notes: list[str] = []
    items, tried = 0, True
    for number, each in enumerate(bound.members):
        made, _ = await asyncio.to_thread(record.find, store, bundle, each, None)
        archive = scratch.archive.with_name(f"member-{number}.holdfast")
        await asyncio.to_thread(store.export, made, archive)
        found = await drill(Scratch(store, made, archive, scratch.trust))
        problems += [f"{each.subject}: {problem}" for problem in found.problems]
        notes += [f"{each.subject}: {note}" for note in found.notes]
        items += found.items
        tried = tried and found.tried
    return Trial(problems=tuple(problems), notes=tuple(notes), items=items, tried=tried)
