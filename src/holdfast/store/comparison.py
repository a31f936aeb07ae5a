"""Comparing two checkpoints, by their maps: unchanged parts are never read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from holdfast.model.amounts import size
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.difference import ABSENT, ValueChange, compare_values
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Record
from holdfast.store.parts.blocks import LEAF_BLOCKS, PAGE, PAGES
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.parts.part import PartRecord, split_ids
from holdfast.store.parts.streams import part_leaves
from holdfast.store.parts.structure import read_value

Change = Literal["added", "removed", "changed", "same"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDiff:
    """What became of one part. `changed_bytes` counts pages or pieces that are new."""

    name: str
    change: Change
    size_before: int
    size_after: int
    changed_bytes: int

    def __str__(self) -> str:
        if self.change != "changed":
            return f"{self.name} {self.change}: {size(max(self.size_before, self.size_after))}"
        sizes = dict.fromkeys((size(self.size_before), size(self.size_after)))
        return f"{self.name} changed: {' -> '.join(sizes)}, {size(self.changed_bytes)} of it new"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What changed from one checkpoint to another."""

    before: Checkpoint
    after: Checkpoint
    parts: tuple[PartDiff, ...]
    values: tuple[ValueChange, ...]

    def __str__(self) -> str:
        """In a few lines, for people."""
        what = f"{self.after.subject}: {self.before.short} -> {self.after.short}"
        return "\n  ".join([what, *(list(self.lines()) or ["the same content"])])

    @property
    def same(self) -> bool:
        return all(part.change == "same" for part in self.parts)

    def lines(self) -> Iterator[str]:
        """One for each part that is not the same, and for each value in those."""
        yield from (str(part) for part in self.parts if part.change != "same")
        yield from map(str, self.values)


def diff(ledger: Ledger, before: Record, after: Record) -> Diff:
    """Compare part by part."""
    old = {part.name: part for part in ledger.part_records(before)}
    new = {part.name: part for part in ledger.part_records(after)}
    parts: list[PartDiff] = []
    values: list[ValueChange] = []
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        parts.append(_part_diff(ledger, name, a, b))
        if parts[-1].change == "same":
            continue
        if (a is None or a.split == "structure") and (b is None or b.split == "structure"):
            library = ledger.library
            left, right = (
                ABSENT if each is None else read_value(each.root, library.get, library.get_many)
                for each in (a, b)
            )
            values += compare_values(name, left, right)
    return Diff(
        before=before.checkpoint(),
        after=after.checkpoint(),
        parts=tuple(parts),
        values=tuple(values),
    )


def _part_diff(ledger: Ledger, name: str, a: PartRecord | None, b: PartRecord | None) -> PartDiff:
    change: Change
    if a is None or b is None:
        change = "added" if a is None else "removed"
        changed = (b or a).size  # type: ignore[union-attr]
    elif a.root == b.root and a.size == b.size:
        change, changed = "same", 0
    else:
        change, changed = "changed", _changed_bytes(ledger, a, b)
    return PartDiff(
        name=name,
        change=change,
        size_before=a.size if a else 0,
        size_after=b.size if b else 0,
        changed_bytes=changed,
    )


def _changed_bytes(ledger: Ledger, a: PartRecord, b: PartRecord) -> int:
    if a.paged and b.paged:
        return sum(_changed_pages(ledger, a, b)) * PAGE
    if a.split == "structure" or b.split == "structure" or a.paged or b.paged:
        return b.size
    known = {chunk for leaf in part_leaves(ledger.library, a) for chunk in split_ids(leaf.ids)}
    return sum(
        length
        for leaf in part_leaves(ledger.library, b)
        for chunk, length in zip(split_ids(leaf.ids), leaf.lengths, strict=True)
        if chunk not in known
    )


def _changed_pages(ledger: Ledger, a: PartRecord, b: PartRecord) -> Iterator[int]:
    """Per block of b: how many pages point elsewhere than in a."""
    old, new = PageReader(ledger.library, a), PageReader(ledger.library, b)
    for block in range(new.block_count):
        if block >= old.block_count:
            yield -(-new.block_size(block) // PAGE)
        elif old.hash(block) != new.hash(block):
            yield _changed_in(old, new, block)


def _changed_in(old: PageReader, new: PageReader, block: int) -> int:
    if old.layer_count(block) or new.layer_count(block):
        # A delta touches many pages, and does not say which: the bytes do.
        before, after = old.assemble(block), new.assemble(block)
        return int((before != after).reshape(PAGES, -1).any(axis=1).sum())
    at = block % LEAF_BLOCKS
    places = old.table(block // LEAF_BLOCKS).page_places(at)
    now = new.table(block // LEAF_BLOCKS).page_places(at)
    return sum(x != y for x, y in zip(places, now, strict=True))
