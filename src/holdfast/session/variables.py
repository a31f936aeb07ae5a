"""What became of each variable between two checkpoints of a session.

The reports say which names there are; the records and sources are compared as they are stored, and
nothing of them is loaded or run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

import msgspec

from holdfast.model.amounts import size
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Corrupt
from holdfast.model.report import Item
from holdfast.session import layout
from holdfast.session.checkpoints import report_of
from holdfast.store import Store
from holdfast.store.comparison import Diff

_RECORDS = "namespace/"
_HEADER = 1 << 20  # a longer one is no header


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableChange:
    """One variable that is new, gone or not what it was."""

    name: str
    change: Literal["added", "removed", "changed"]
    before: Item | None
    after: Item | None

    def __str__(self) -> str:
        said = [told(item) for item in (self.before, self.after) if item is not None]
        return f"{self.name} {self.change}: {' -> '.join(dict.fromkeys(said))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDiff(Diff):
    """What changed from one checkpoint of a session to another, by variable."""

    variables: tuple[VariableChange, ...]

    @classmethod
    def of(cls, store: Store, diff: Diff, *, trust: bool = False) -> Self:
        """Raises Denied or Corrupt."""
        return cls(
            before=diff.before, after=diff.after, parts=diff.parts, values=diff.values,
            variables=tuple(compare(store, diff, trust=trust) or ()),
        )  # fmt: skip

    def lines(self) -> Iterator[str]:
        """One for each variable."""
        yield from map(str, self.variables)


def told(item: Item) -> str:
    """`exact, list 2 items, 24 B`; for what did not come through whole, why."""
    what = " ".join(each for each in (item.type_name, item.summary) if each)
    more = size(item.size_bytes) if item.size_bytes else item.reason
    return ", ".join(each for each in (item.outcome, what, more) if each)


def compare(store: Store, diff: Diff, *, trust: bool = False) -> list[VariableChange] | None:
    """The variables that differ, or None when these are not two checkpoints of sessions."""
    if {diff.before.subject.kind, diff.after.subject.kind} != {"session"}:
        return None
    before, after = (_items(store, each, trust) for each in (diff.before, diff.after))
    if before is None or after is None:
        return None
    differ = {part.name for part in diff.parts if part.change != "same"}
    stored = [_Kept(store, each, trust) for each in (diff.before, diff.after)]
    changes = []
    for name in [*before, *(name for name in after if name not in before)]:
        a, b = before.get(name), after.get(name)
        if a is None or b is None:
            change: Literal["added", "removed", "changed"] = "added" if a is None else "removed"
        elif (
            _reported(a) != _reported(b)
            or stored[0].of(name) != stored[1].of(name)
            or any(not each.parts_of(name).isdisjoint(differ) for each in stored)
        ):
            change = "changed"
        else:
            continue
        changes.append(VariableChange(name=name, change=change, before=a, after=b))
    return changes


def _items(store: Store, checkpoint: Checkpoint, trust: bool) -> dict[str, Item] | None:
    """What the capture reported, by name; None when that is another writer's idea of a report."""
    if store.show(checkpoint).part("report") is None:
        return None
    try:
        found = msgspec.convert(store.value(checkpoint, "report", trust=trust), layout.ReportPart)
    except msgspec.ValidationError:
        return None
    return {item.name: item for item in report_of(found.items).items}


def _reported(item: Item) -> tuple[object, ...]:
    """What two captures say alike about a variable that is the same."""
    return item.outcome, item.reason, item.tier, item.size_bytes


def is_noise(part: str, path: str) -> bool:
    """Whether a changed value only says that another capture was made, at another time."""
    return part == "report" or (part == "environment" and path in ("created", "execution_count"))


class _Kept:
    """What a checkpoint keeps, by variable: small records and sources as they are, large records
    and memory by the parts that they are in."""

    def __init__(self, store: Store, checkpoint: Checkpoint, trust: bool) -> None:
        self._small: dict[str, layout.Record] = {}  # by member
        self._large: dict[str, tuple[str, set[str]]] = {}  # by member: the part, and what it uses
        self._sources: dict[str, object] = {}
        self._unread: set[str] = set()  # parts whose records another writer wrote in another way
        names = [part.name for part in store.show(checkpoint).parts]
        for name in names:
            if name == layout.SMALL_PART:
                try:
                    for record in layout.decode_records(store.read(checkpoint, name, trust=trust)):
                        self._small |= dict.fromkeys(record.members, record)
                except Corrupt:
                    self._unread.add(name)
            elif name.startswith(_RECORDS):
                try:
                    for header in _headers(store, checkpoint, name, trust):
                        for member in header.members:
                            self._large.setdefault(member, (name, set()))[1].update(header.uses)
                except Corrupt:
                    self._unread.add(name)
        self._parts = set(names)
        if "sources" in names:
            try:
                self._sources = _definitions(store.value(checkpoint, "sources", trust=trust))
            except msgspec.ValidationError:
                self._unread.add("sources")

    def of(self, name: str) -> list[object]:
        """What is kept of a variable in small records and as source."""
        reached = self._reached(name)
        small = [self._small[member].data for member in reached if member in self._small]
        return [self._sources.get(name), *small]

    def parts_of(self, name: str) -> set[str]:
        """The parts that hold the rest of it; where nobody knows, all that could not be read."""
        reached = self._reached(name)
        if not any(member in self._small or member in self._large for member in reached[:1]):
            return self._unread
        found = {self._large[member][0] for member in reached if member in self._large}
        if len(reached) > 1:  # what it needs may be in those
            found |= self._unread
        return found | (self._parts & {layout.BUFFERS + m.partition(":")[2] for m in reached})

    def _reached(self, name: str) -> list[str]:
        """The members that a variable needs: its own, and what those name."""
        own = layout.NAME + name
        small = self._small.get(own)
        if small is not None and not small.uses and own not in self._large:
            return [own]  # as nearly always
        found: dict[str, None] = {}
        waiting = [own]
        while waiting:
            member = waiting.pop()
            if member in found:
                continue
            found[member] = None
            uses = set(self._large.get(member, ("", set()))[1])
            if member in self._small:
                uses.update(self._small[member].uses)
            for label in sorted(uses):
                waiting += [layout.OBJECT + label, layout.SEGMENT + label]
        return list(found)


def _headers(
    store: Store, checkpoint: Checkpoint, part: str, trust: bool
) -> Iterator[layout.Record]:
    """The headers of a part's records, without what is between them. Raises Corrupt for what is
    none: this part is verified, so another writer has another idea of a session."""
    with store.open(checkpoint, part, trust=trust) as stream:
        while length := int.from_bytes(stream.read(4), "big"):
            if length > _HEADER:
                raise Corrupt("a record's header is too long")
            yield layout.decode(stream.read(length), layout.Record)
            stream.seek(int.from_bytes(stream.read(8), "big"), os.SEEK_CUR)


def _definitions(value: object) -> dict[str, object]:
    """The lines of each definition. Raises ValidationError for what another writer has."""
    sources = msgspec.convert(value, layout.Sources)
    cells = {cell.number: cell.text.splitlines() for cell in sources.cells}
    return {
        name: cells.get(each.cell, [])[each.first - 1 : each.last]
        for each in sources.definitions
        for name in each.names
    }
