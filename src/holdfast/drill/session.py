"""A session's checkpoint: a new worker becomes it, is frozen again, and the two are compared."""

from __future__ import annotations

import asyncio

from holdfast.drill.scratch import Scratch, Trial
from holdfast.model.report import Item
from holdfast.session import Session
from holdfast.session.variables import VariableChange, compare
from holdfast.view.reports import read_report

_CAME_BACK = ("exact", "rebuilt")


async def try_session(scratch: Scratch) -> Trial:
    """Restore it, look at what came back, and freeze it again."""
    store = scratch.store
    manifest = await asyncio.to_thread(store.show, scratch.checkpoint)
    frozen = await asyncio.to_thread(read_report, store, manifest, trust=scratch.trust)
    before = {item.name: item for item in frozen.items} if frozen else {}
    async with Session(store=store) as session:
        report = await session.restore(scratch.archive, trust=scratch.trust)
        again = await session.checkpoint(reason="drill")
    after = {item.name: item for item in report.items}
    problems = [_lost(item, after.get(item.name)) for item in before.values()]
    diff = await asyncio.to_thread(store.diff, scratch.checkpoint, again.checkpoint, trust=True)
    changes = await asyncio.to_thread(compare, store, diff, trust=True)
    well = {item.name for item in before.values() if item.outcome in _CAME_BACK}
    return Trial(
        problems=tuple(filter(None, problems)),
        notes=tuple(_changed(change) for change in changes or () if change.name in well),
        items=len(before),
    )


def _lost(frozen: Item, restored: Item | None) -> str:
    """What is wrong with a name that was frozen well; nothing for one that was not."""
    if frozen.outcome not in _CAME_BACK:
        return ""
    if restored is None:
        return f"{frozen.name} was frozen and did not come back"
    if restored.outcome not in _CAME_BACK:
        return f"{frozen.name} came back as {restored.outcome}: {restored.reason}"
    return ""


def _changed(change: VariableChange) -> str:
    what = {"added": "is there only", "removed": "is gone", "changed": "is not byte for byte equal"}
    return f"{change.name} {what[change.change]} when it is frozen again"
