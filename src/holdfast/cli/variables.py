"""What became of each variable between two checkpoints of a session.

The reports say which names there are; the records and sources are compared as they are stored, and
nothing of them is loaded or run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Corrupt
from holdfast.model.report import Item
from holdfast.server.reports import read_report
from holdfast.session import layout
from holdfast.store import Store
from holdfast.store.comparison import Diff

_LARGE = "namespace/"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableChange:
    """One variable that is new, gone or not what it was."""

    name: str
    change: Literal["added", "removed", "changed"]
    before: Item | None
    after: Item | None


def compare(store: Store, diff: Diff, *, trust: bool = False) -> list[VariableChange] | None:
    """The variables that differ, or None when these are not two checkpoints of sessions."""
    if {diff.before.subject.kind, diff.after.subject.kind} != {"session"}:
        return None
    old = read_report(store, store.show(diff.before), trust=trust)
    new = read_report(store, store.show(diff.after), trust=trust)
    if old is None or new is None:
        return None
    before = {item.name: item for item in old.items}
    after = {item.name: item for item in new.items}
    stored = [_stored(store, each, trust) for each in (diff.before, diff.after)]
    large = {part.name for part in diff.parts if part.change == "changed"}
    changes = []
    for name in [*before, *(name for name in after if name not in before)]:
        a, b = before.get(name), after.get(name)
        if a is None or b is None:
            change: Literal["added", "removed", "changed"] = "added" if a is None else "removed"
        elif a != b or f"{_LARGE}{name}" in large or stored[0].get(name) != stored[1].get(name):
            change = "changed"
        else:
            continue
        changes.append(VariableChange(name=name, change=change, before=a, after=b))
    return changes


def is_noise(part: str, path: str) -> bool:
    """Whether a changed value only says that another capture was made, at another time."""
    return part == "report" or (part == "environment" and path in ("created", "execution_count"))


def _stored(store: Store, checkpoint: Checkpoint, trust: bool) -> dict[str, object]:
    """By variable, what is kept of it: the small records, and the source of definitions."""
    parts = {part.name for part in store.show(checkpoint).parts}
    found: dict[str, object] = {}
    if layout.SMALL_PART in parts:
        found |= _records(store.read(checkpoint, layout.SMALL_PART, trust=trust))
    if "sources" in parts:
        found |= _definitions(store.value(checkpoint, "sources", trust=trust))
    return found


def _records(part: bytes) -> dict[str, object]:
    try:
        records = list(layout.decode_records(part))
    except Corrupt:
        return {}  # another writer's idea of a session: then the reports alone are compared
    return {
        member.removeprefix(layout.NAME): record.data
        for record in records
        for member in record.members
    }


def _definitions(value: object) -> dict[str, object]:
    try:
        sources = msgspec.convert(value, layout.Sources)
    except msgspec.ValidationError:
        return {}
    cells = {cell.number: cell.text.splitlines() for cell in sources.cells}
    return {
        name: cells.get(each.cell, [])[each.first - 1 : each.last]
        for each in sources.definitions
        for name in each.names
    }
