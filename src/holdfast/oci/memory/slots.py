"""An order of pages that stays the same from dump to dump, for a store that compares by place.

CRIU writes pages in the order of their addresses, so one new page in the middle moves all behind
it. Here each page has a slot, which it keeps as long as it is there; a page that is new takes a
slot that became free, or one at the end. Pure, but for `rearranged`, which reads pages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from holdfast.model.errors import Corrupt
from holdfast.oci.memory.pagemap import Pagemap
from holdfast.oci.memory.runs import Pages

_RUN = struct.Struct("<QQQ")  # first page, first slot, count
_STEP = 4096
_SPARE = 2  # when fewer than one in so many slots is used, they are given out anew

Numbers = NDArray[np.int64]
Table = tuple[Numbers, Numbers]  # pages in ascending order, and the slot of each


def empty() -> Table:
    return np.empty(0, np.int64), np.empty(0, np.int64)


def assign(pages: Numbers, before: Table) -> Table:
    """A slot for each page (ascending): the one it had, else a free one, else a new one."""
    known, slots = before
    if len(known) and int(slots.max()) + 1 > _SPARE * max(len(pages), 1):
        known, slots = empty()
    places = np.searchsorted(known, pages)
    places[places == len(known)] = 0
    had = known[places] == pages if len(known) else np.zeros(len(pages), np.bool_)
    given = np.full(len(pages), -1, np.int64)
    given[had] = slots[places[had]] if len(known) else 0
    taken = np.zeros(len(pages) + (int(slots.max()) + 1 if len(slots) else 0), np.bool_)
    taken[given[had]] = True
    free = np.flatnonzero(~taken)
    given[~had] = free[: int((~had).sum())]
    return pages, given


def of_map(pagemap: Pagemap, before: Table) -> tuple[Table, Numbers]:
    """The table of a dump's map, and for each slot the index in CRIU's file of its page."""
    runs = [np.arange(e.page, e.page + e.count) for e in pagemap.entries if e.present]
    pages = np.concatenate(runs) if runs else np.empty(0, np.int64)
    ascending = np.argsort(pages, kind="stable")
    table = assign(pages[ascending], before)
    order = np.full(int(table[1].max()) + 1 if len(pages) else 0, -1, np.int64)
    order[table[1]] = ascending
    return table, order


def of_table(pagemap: Pagemap, table: Table) -> Numbers:
    """For each page of CRIU's file the slot that has it; raises Corrupt when one has none."""
    runs = [np.arange(e.page, e.page + e.count) for e in pagemap.entries if e.present]
    pages = np.concatenate(runs) if runs else np.empty(0, np.int64)
    known, slots = table
    places = np.searchsorted(known, pages)
    if len(pages) and (places.max() >= len(known) or (known[places] != pages).any()):
        raise Corrupt("a table of slots lacks pages")
    return slots[places]


def encode(table: Table) -> bytes:
    """A table as runs in which page and slot grow together."""
    pages, slots = table
    turns = np.flatnonzero((np.diff(pages) != 1) | (np.diff(slots) != 1)) + 1
    ends = [0, *turns.tolist(), len(pages)]
    return b"".join(
        _RUN.pack(int(pages[start]), int(slots[start]), end - start)
        for start, end in pairwise(ends)
        if end > start
    )


def decode(data: bytes) -> Table:
    """The table in a part; raises Corrupt."""
    if len(data) % _RUN.size:
        raise Corrupt("a table of slots ends too early")
    pages, slots = [], []
    for page, slot, count in _RUN.iter_unpack(data):
        pages.append(np.arange(page, page + count, dtype=np.int64))
        slots.append(np.arange(slot, slot + count, dtype=np.int64))
    return (np.concatenate(pages), np.concatenate(slots)) if pages else empty()


def rearranged(pages: Pages, order: Numbers) -> Iterator[bytes]:
    """Pages in another order; a page of zeros where the order says -1."""
    for at in range(0, len(order), _STEP):
        wanted = order[at : at + _STEP]
        if len(pages):
            out = pages[wanted]
            out[wanted < 0] = 0
        else:
            out = np.zeros((len(wanted), 512), np.uint64)
        yield out.tobytes()
