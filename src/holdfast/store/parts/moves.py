"""Moves: pages that the parent has, in another place.

What writes an image of memory may choose the order anew each time, so that pages that did not
change stand elsewhere: mostly long runs of them, all by the same shift. Fingerprints say by which;
what decides is a comparison with the bytes there.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from holdfast.model.errors import Corrupt
from holdfast.store.arrays import distinct, np
from holdfast.store.chunks.chunk import ZERO_ID, Buffer
from holdfast.store.parts.blocks import HOLE, LEAF_BLOCKS, PAGE, PAGES, Extent
from holdfast.store.parts.pagereader import PageReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Numbers = NDArray[np.int64]

# A block is read again from few places, or it is better stored whole: at most so many shifts
# count, and each has to hold for so many of its pages.
_SHIFTS = 4
_LEAST = 4
_MAX_RUNS = PAGES // 4

_NOWHERE = -1
_FACTOR = 0x9E3779B97F4A7C15  # any odd number with many bits
_WORDS = PAGE // 8
_LEAF = LEAF_BLOCKS * PAGES
_LEAVES = 1 << 32  # numbers of chunks are smaller
_RECENT = 64  # blocks of the parent: neighbours have moved to where neighbours were


class Moves:
    """Finds pages of one parent. Thread-safe."""

    def __init__(self, base: PageReader) -> None:
        self._base = base
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._known: tuple[Words, Numbers] | None = None
        self._recent: OrderedDict[int, Buffer] = OrderedDict()

    @property
    def sought(self) -> bool:
        """Whether somebody looked for pages already."""
        return self._known is not None

    def read(self, block: int) -> Buffer:
        """A block of the parent, verified. Raises Corrupt."""
        with self._lock:
            if (found := self._recent.get(block)) is not None:
                self._recent.move_to_end(block)
                return found
        found = self._base.read(block)
        with self._lock:
            self._recent[block] = found
            if len(self._recent) > _RECENT:
                self._recent.popitem(last=False)
        return found

    def find(self, pages: Words, first: int) -> list[Extent]:
        """Which of the pages from `first` on the parent has, and where; nothing when they would be
        put together from too many places."""
        shifts = self._shifts(pages, first)
        if not shifts:
            return []
        origin = np.full(len(pages), _NOWHERE, dtype=np.int64)
        for shift in shifts:
            found = self._compared(pages, first + shift)
            found[origin != _NOWHERE] = _NOWHERE
            if np.count_nonzero(found != _NOWHERE) >= _LEAST:
                origin = np.where(found == _NOWHERE, origin, found)
            if _NOWHERE not in origin:
                break
        runs = self._runs(origin)
        return runs if len(runs) <= _MAX_RUNS else []

    def _shifts(self, pages: Words, first: int) -> list[int]:
        """By how much pages seem to have moved, most of them first."""
        known, numbers = self._fingerprints()
        if not len(known):
            return []
        wanted = fingerprints(pages)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        there = np.flatnonzero(known[at] == wanted)
        shifts = Counter((numbers[at[there]] - there - first).tolist())
        return [shift for shift, _ in shifts.most_common(_SHIFTS)]

    def _compared(self, pages: Words, start: int) -> Numbers:
        """Which of the parent's pages from `start` on these are, or nowhere."""
        found = np.full(len(pages), _NOWHERE, dtype=np.int64)
        end = start + len(pages)
        for block in range(max(0, start) // PAGES, -(-end // PAGES)):
            there = self._pages(block)
            low, high = max(start, block * PAGES), min(end, block * PAGES + len(there))
            if low < high:
                here = slice(low - start, high - start)
                same = (pages[here] == there[low - block * PAGES : high - block * PAGES]).all(
                    axis=1
                )
                found[here][same] = np.arange(low, high)[same]
        return found

    def _pages(self, block: int) -> Words:
        """The whole pages of a block; none where deltas lie on it, because then they are in no
        chunk."""
        base = self._base
        none = np.zeros((0, _WORDS), dtype=np.uint64)
        if block >= base.block_count or base.hash(block) == ZERO_ID or base.layer_count(block):
            return none
        try:
            return _pages(self.read(block))
        except Corrupt:
            return none  # a damaged parent is no reason to lose the child

    def _runs(self, origin: Numbers) -> list[Extent]:
        """Where pages are that follow each other here and there; holes are nowhere."""
        chunk = np.full(len(origin), HOLE, dtype=np.int64)
        at = np.zeros(len(origin), dtype=np.int64)
        leaves = np.where(origin == _NOWHERE, _NOWHERE, origin // _LEAF)
        for leaf in distinct(leaves).tolist():
            if leaf != _NOWHERE:
                here = leaves == leaf
                table = self._base.table(leaf)
                numbers = table.chunk.reshape(-1)[origin[here] % _LEAF].astype(np.int64)
                chunk[here] = np.where(numbers == HOLE, HOLE, numbers + leaf * _LEAVES)
                at[here] = table.at.reshape(-1)[origin[here] % _LEAF]
        breaks = np.ones(len(origin), dtype=bool)
        breaks[1:] = (chunk[1:] != chunk[:-1]) | (at[1:] != at[:-1] + 1)
        starts = np.flatnonzero(breaks)
        ends = np.append(starts[1:], len(origin))
        runs: list[Extent] = []
        for start, end, key in zip(
            starts.tolist(), ends.tolist(), chunk[starts].tolist(), strict=True
        ):
            if key != HOLE:
                leaf, number = divmod(key, _LEAVES)
                found = self._base.table(leaf).ids[number]
                runs.append(Extent(start, end - start, found, int(at[start])))
        return runs

    def _fingerprints(self) -> tuple[Words, Numbers]:
        """Fingerprints of the parent's pages, sorted, and the pages that have them: as many as meet
        every run that is worth it. Made when they are first asked for; others wait."""
        with self._making:
            if self._known is None:
                self._known = self._look_at_all()
            return self._known

    def _look_at_all(self) -> tuple[Words, Numbers]:
        base = self._base
        prints = [np.empty(0, dtype=np.uint64)]
        numbers = [np.empty(0, dtype=np.int64)]
        for block in range(base.block_count):
            if base.hash(block) != ZERO_ID and not base.layer_count(block):
                try:
                    pages = _pages(base.glance(block))
                except Corrupt:
                    continue
                prints.append(fingerprints(pages[::_LEAST]))
                numbers.append(np.arange(block * PAGES, block * PAGES + len(pages), _LEAST))
        found = np.concatenate(prints)
        order = np.argsort(found, kind="stable")
        order = order[found[order] != 0]  # zeros are everywhere, and need no place
        return found[order], np.concatenate(numbers)[order]


def _pages(block: Buffer) -> Words:
    """The whole pages of a block, a row each."""
    return np.frombuffer(block, np.uint64, len(block) // PAGE * _WORDS).reshape(-1, _WORDS)


def fingerprints(pages: Words) -> Words:
    """A number for each page, of zeros 0. It only serves for guesses; and while a better hash is
    asked for page by page, other threads are in the way each time."""
    factors = np.multiply.accumulate(np.full(_WORDS, _FACTOR, dtype=np.uint64))
    return pages @ factors
