"""Makes a dump an increment of an earlier one: only pages that differ stay, by their address.

The kernel is not asked which pages were written (many cannot tell); the bytes of both dumps are
compared. The result is CRIU's own format, so that CRIU restores it as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.oci.memory.pagemap import PAGE, Entry, Pagemap, pagemaps
from holdfast.oci.memory.runs import Memory, Pages, file_pages

_STEP = 2048  # pages that are compared at once: they fit into a processor's cache

Changed = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Difference:
    """One map of a new dump, and which of its pages are not in the old one as they are."""

    name: str
    pagemap: Pagemap
    changed: Changed

    @property
    def pages(self) -> int:
        return len(self.changed)

    @property
    def dirty(self) -> int:
        return int(self.changed.sum())


def compare(base: Path, new: Path) -> list[Difference]:
    """How the maps of a dump differ from those of an earlier one; maps that only one of them has
    are left out, and so are maps that share a file of pages."""
    maps = {name: Pagemap.read(new / name) for name in pagemaps(new)}
    files = Counter(pagemap.pages_name for pagemap in maps.values())
    known = set(pagemaps(base))
    return [
        Difference(name, pagemap, _changed(new, pagemap, Memory.read(base, name)))
        for name, pagemap in maps.items()
        if name in known and files[pagemap.pages_name] == 1
    ]


def carry_out(new: Path, differences: list[Difference]) -> None:
    """Rewrite the dump's files: what did not change is said to be in the parent."""
    for each in differences:
        place = new / each.pagemap.pages_name
        pages = file_pages(place)
        draft = place.with_suffix(".draft")
        entries: list[Entry] = []
        with draft.open("xb") as out:
            at = 0
            for entry in each.pagemap.entries:
                if not entry.present:
                    entries.append(entry)
                    continue
                changed = each.changed[at : at + entry.count]
                for start, end in _stretches(changed):
                    here = bool(changed[start])
                    entries.append(entry.cut(start, end, in_parent=not here))
                    if here:
                        out.write(pages[at + start : at + end].data)
                at += entry.count
        draft.replace(place)
        changed_map = Pagemap(each.pagemap.magic, each.pagemap.head, tuple(entries))
        (new / each.name).write_bytes(changed_map.encode())


def kept_bytes(differences: list[Difference]) -> int:
    return sum(each.dirty for each in differences) * PAGE


def whole_bytes(differences: list[Difference]) -> int:
    return sum(each.pages for each in differences) * PAGE


def _changed(new: Path, pagemap: Pagemap, before: Memory) -> Changed:
    pages = file_pages(new / pagemap.pages_name)
    changed = np.ones(len(pages), np.bool_)
    at = 0
    for entry in pagemap.entries:
        if not entry.present:
            continue
        for run in before.within(entry.page, entry.page + entry.count):
            start = at + run.page - entry.page
            changed[start : start + len(run.data)] = _differs(
                pages[start : start + len(run.data)], run.data
            )
        at += entry.count
    return changed


def _differs(ours: Pages, theirs: Pages) -> Changed:
    found = np.empty(len(ours), np.bool_)
    for at in range(0, len(ours), _STEP):
        found[at : at + _STEP] = (ours[at : at + _STEP] != theirs[at : at + _STEP]).any(axis=1)
    return found


def _stretches(changed: Changed) -> Iterator[tuple[int, int]]:
    """Where stretches of equal value begin and end."""
    turns = np.flatnonzero(np.diff(changed)) + 1
    return pairwise([0, *turns.tolist(), len(changed)])
