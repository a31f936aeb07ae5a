"""Writing parts that are made of pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.model.errors import Corrupt
from holdfast.store.arrays import np
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import ZERO_ID, chunk_id
from holdfast.store.chunks.library import Library
from holdfast.store.chunks.sink import Sink
from holdfast.store.parts import deltas
from holdfast.store.parts.blocks import (
    BLOCK,
    HOLE,
    LEAF_BLOCKS,
    PAGE,
    PAGES,
    Extent,
    PageTable,
    pages_root,
)
from holdfast.store.parts.gathering import Gathering
from holdfast.store.parts.moves import Moves
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.parts.printing import Printing
from holdfast.store.parts.sources import WINDOW, Fetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Words = NDArray[np.uint64]

Item = TypeVar("Item")

_WORDS = PAGE // 8
_ZEROS = bytes(64)

_BLOCKS_PER_WINDOW = WINDOW // BLOCK
# Windows for one task: of what is new, and where most blocks will be as before, which is found out
# so quickly that handing a window to a thread would take a good part of the time.
_SLOW, _QUICK = 2, 8
# Beyond that many runs of pages a block is stored whole again: it keeps reading fast, and
# keeps chunks of gathered pages from staying alive for a single page.
_MAX_RUNS = 3 * PAGES // 4
# Bytes of a block that are stored without looking for them elsewhere.
_LITTLE = BLOCK // 8
# So many deltas lie on a block before they are put together: reading applies each of them.
_MAX_LAYERS = 8


class _Changes(NamedTuple):
    """The pages of a block that are not as before, or that the parent does not have."""

    zero: NDArray[np.intp]  # those that became zero
    other: NDArray[np.intp]
    contents: NDArray[np.uint64]  # of the others, a row each
    moved: list[Extent] | None = None  # where the rest is, if not where it was

    @classmethod
    def of_zeros(cls, words: Words) -> _Changes | None:
        """Those of a block that was zero; None when they are most of it."""
        used = np.bitwise_or.reduce(words, axis=1).nonzero()[0]
        return cls(used[:0], used, words[used]) if len(used) <= PAGES // 2 else None

    @classmethod
    def of(
        cls, words: Words, pages: NDArray[np.intp], moved: list[Extent] | None = None
    ) -> _Changes:
        contents = words[pages]  # a copy: they may be in a window that is fetched over
        if contents[:, 0].all():  # as mostly, and then none of them is zero
            return cls(pages[:0], pages, contents, moved)
        used = np.bitwise_or.reduce(contents, axis=1) != 0
        if used.all():
            return cls(pages[:0], pages, contents, moved)
        return cls(pages[~used], pages[used], contents[used], moved)

    @property
    def size(self) -> int:
        return self.contents.nbytes


class _Delta(NamedTuple):
    """How few words of a block, on many of its pages, are not as before."""

    data: bytes
    merged: bool  # from what lies under all deltas of the parent's block

    @property
    def size(self) -> int:
        return len(self.data)


class Written(NamedTuple):
    """A part as it was written: the chunks of this draft, and those of earlier ones, which are in
    these volumes."""

    root: bytes
    leaves: list[bytes]  # encoded
    tables: list[PageTable]
    chunks: set[bytes]
    kept: set[bytes]
    kept_in: set[bytes]


@dataclass(slots=True)
class Examined:
    """What examining one block found out. Neither `data` nor `changed`: it is as before."""

    hash: bytes
    pages: int
    data: Bytes | None = None  # to be stored whole, in order
    stored: bool = False  # is a chunk already
    changed: _Changes | _Delta | None = None
    same: bool = False
    marks: bytes | None = None  # by which its pages will be told from others


class PageWriter:
    """Writes one part; `base` is the parent's part on the same page grid, where there is one."""

    def __init__(
        self,
        sink: Sink,
        library: Library,
        base: PageReader | None,
        aligned: bool,
        moved: bool = False,
        passing: bool = False,
        printing: Printing | None = None,
    ) -> None:
        """`moved`: pages are looked for elsewhere in the base, too. `passing`: what is new goes
        past the file cache. `printing`: knows which pages changed where it has seen the base."""
        self._sink = sink
        self._library = library
        self._base = base
        self._moves = Moves(base) if moved and base is not None else None
        self._aligned = aligned
        self._passing = passing
        self._printing = printing
        self._tables: list[PageTable] = []
        self._pages = Gathering(sink, aligned)
        self._deltas = Gathering(sink, aligned=False)

    def write(self, windows: Iterator[Fetch]) -> tuple[int, Written]:
        """Returns bytes on the grid, and what was written."""
        total = 0
        block = 0
        numbered = zip(windows, count(step=_BLOCKS_PER_WINDOW))
        tasks = _batched(numbered, _QUICK if self._base is not None else _SLOW)
        with closing(workers.in_order(self._examine, tasks, 2 * workers.count())) as examined:
            for blocks, size in examined:
                for item in blocks:
                    self._enter(self._table(block), block % LEAF_BLOCKS, item)
                    if self._printing is not None:
                        self._printing.enter(item.hash, item.marks)
                    block += 1
                total += size
        return total, self._finished(block)

    def _finished(self, blocks: int) -> Written:
        """What was written, in so many blocks."""
        self._pages.seal()
        self._deltas.seal()
        self._sink.written()  # what was given may change from here on
        # The last leaf was sized for a full one or for the parent's length.
        if self._tables:
            last = blocks - (len(self._tables) - 1) * LEAF_BLOCKS
            if len(self._tables[-1]) != last:
                self._tables[-1] = self._tables[-1].resized(last)
        tables = self._tables
        leaves: list[bytes] = []
        chunks: set[bytes] = set()
        kept: set[bytes] = set()
        volumes: set[bytes] = set()
        for table in tables:
            leaf, used = table.encode()
            if len(table.homes) > 2 * len(used):  # mostly of what is no longer there
                table.homes = {c: home for c in used if (home := table.homes.get(c)) is not None}
            kept_in, rest = self._sink.kept_in(used, table.homes)
            self._sink.refer(rest, self._library.verified)
            leaves.append(leaf)
            chunks |= {*rest}
            kept |= {*used}.difference(rest)
            volumes |= kept_in
        return Written(pages_root(tables), leaves, tables, chunks, kept, volumes)

    def _examine(self, windows: list[tuple[Fetch, int]]) -> tuple[list[Examined], int]:
        found: list[Examined] = []
        size = 0
        for fetch, first in windows:
            # What is stored in order is still needed when the next window is fetched.
            data = np.frombuffer(fetch(not self._aligned), dtype=np.uint8)
            for i, start in enumerate(range(0, len(data), BLOCK)):
                found.append(self._examine_block(data[start : start + BLOCK], first + i))
            size += len(data)
        return found, size

    def _examine_block(self, data: Bytes, block: int, before: Bytes | None = None) -> Examined:
        """`before` is the parent's block, where it has been read already."""
        pages = -(-len(data) // PAGE)
        if _is_zero(data):
            return Examined(ZERO_ID, pages)
        found = chunk_id(data.data)
        base = self._base if self._base is not None and block < self._base.block_count else None
        if base is not None and base.hash(block) == found:
            return Examined(found, pages, same=True)
        if base is not None and base.hash(block) == ZERO_ID:
            filled = _Changes.of_zeros(_words(data))
            if filled is not None and (self._moves is None or filled.size <= _LITTLE):
                return Examined(found, pages, changed=filled, marks=self._marks(data, filled))
        marks = self._marks(data)
        changed = self._difference(base, block, data, before, marks)
        if changed is not None:
            return Examined(found, pages, changed=changed, marks=marks)
        if self._aligned:
            return Examined(found, pages, data=data)  # in order, so that neighbours stay neighbours
        self._sink.put(data.data, chunk=found)
        return Examined(found, pages, stored=True, marks=marks)

    def _marks(self, data: Bytes, filled: _Changes | None = None) -> bytes | None:
        """The prints of a block; of one that is zero but for a few pages, it takes only those."""
        if self._printing is None:
            return None
        words = _words(data)
        if filled is None:
            return self._printing.marks(words)
        return self._printing.marks_among_zeros(len(words), filled.other, filled.contents)

    def _difference(
        self,
        base: PageReader | None,
        block: int,
        data: Bytes,
        before: Bytes | None,
        marks: bytes | None,
    ) -> _Changes | _Delta | None:
        """How a block differs from what the parent has; None when it is better stored whole."""
        moves, moved = self._moves, None
        # Where others have moved, the block that is in its place now need not even be read, mostly.
        moving = moves is not None and moves.sought
        if moves is not None and moving:
            moved = _moved(moves, block, data)
            if moved is not None and moved.size <= _LITTLE:
                return moved
        changed: _Changes | _Delta | None = None
        if base is not None:
            changed = self._known_changes(base, block, data, marks)
            changed = changed or self._changes(base, block, data, before)
        size = len(data) if changed is None else changed.size
        if moves is not None and not moving and size > _LITTLE:
            moved = _moved(moves, block, data)
        return moved if moved is not None and moved.size < size else changed

    def _known_changes(
        self, base: PageReader, block: int, data: Bytes, marks: bytes | None
    ) -> _Changes | None:
        """Which few pages of a block changed, where that can be told without reading the parent's;
        else None."""
        if self._printing is None or marks is None:
            return None
        if base.layer_count(block) or base.block_size(block) != len(data):
            return None
        changed = self._printing.changed(block, base.hash(block), marks)
        if changed is None or not 0 < len(changed) <= PAGES // 2:
            return None
        if base.run_count(block) > _MAX_RUNS:
            return None
        return _Changes.of(_words(data), changed)

    def _changes(
        self, base: PageReader, block: int, data: Bytes, before: Bytes | None
    ) -> _Changes | _Delta | None:
        """How a block differs from the same one of the parent; None when that is too much."""
        layers = base.layer_count(block)
        if base.run_count(block) > _MAX_RUNS and not layers:
            return None
        words = _words(data)
        try:
            if base.hash(block) == ZERO_ID:
                if (filled := _Changes.of_zeros(words)) is not None:
                    return filled
                old = np.zeros_like(words)
            else:
                if before is None:
                    if _is_new(base, block, words):
                        return None
                    before = np.frombuffer((self._moves or base).read(block), np.uint8)
                old = _words(before, len(words))
            # What lies behind the end of a block has no part in its deltas.
            same_size = base.block_size(block) == len(data)
            if layers:
                return self._delta(base, block, old, words) if same_size else None
            changed = (words != old).any(axis=1).nonzero()[0]
            if len(changed) > PAGES // 2:
                return self._delta(base, block, old, words) if same_size else None
        except Corrupt:
            return None  # a damaged parent is no reason to lose the child
        return _Changes.of(words, changed)

    def _delta(self, base: PageReader, block: int, old: Words, now: Words) -> _Delta | None:
        """What to XOR onto the parent's block, or onto what its deltas lie on if they are many."""
        merged = base.layer_count(block) >= _MAX_LAYERS
        if merged:
            old = base.bare(block).view(np.uint64)[: now.size].reshape(now.shape)
        data = deltas.encode(old.reshape(-1), now.reshape(-1))
        return None if data is None else _Delta(data, merged)

    def _enter(self, table: PageTable, at: int, item: Examined) -> None:
        """What was found out about a block, into its table."""
        if item.hash == ZERO_ID:
            table.set_zero(at)
        elif isinstance(item.changed, _Delta):
            table.hashes[at] = item.hash
            if item.changed.merged:
                table.layers[at] = []
            table.layers.setdefault(at, []).append(self._deltas.add(table, item.changed.data))
        elif item.changed is not None:
            table.hashes[at] = item.hash
            if item.changed.moved is not None:
                table.set_extents(at, item.changed.moved)
            if len(item.changed.zero):
                table.chunk[at, item.changed.zero] = HOLE
            if item.pages < PAGES:
                table.chunk[at, item.pages :] = HOLE
            self._gather(table, at, item.changed)
        elif not item.same:
            if item.data is not None:
                self._sink.put(item.data.data, chunk=item.hash, aligned=True, passing=self._passing)
            table.set_whole(at, item.hash, item.pages)

    def _table(self, block: int) -> PageTable:
        leaf = block // LEAF_BLOCKS
        if leaf == len(self._tables):
            base = self._base
            if base is not None and leaf * LEAF_BLOCKS < base.block_count:
                # Starting from the parent's leaf, an unchanged block needs no work at all.
                self._tables.append(base.table(leaf).resized(LEAF_BLOCKS))
            else:
                self._tables.append(PageTable(LEAF_BLOCKS))
        return self._tables[leaf]

    def _gather(self, table: PageTable, at: int, changes: _Changes) -> None:
        """Put changed pages together with those of other blocks into one chunk."""
        pages, contents = changes.other, changes.contents
        while len(pages):
            count = min(len(pages), self._pages.room // PAGE)
            number, start = self._pages.add(table, contents[:count].data.cast("B"))
            table.chunk[at][pages[:count]] = number
            table.at[at][pages[:count]] = np.arange(start // PAGE, start // PAGE + count)
            pages, contents = pages[count:], contents[count:]


def _moved(moves: Moves, block: int, data: Bytes) -> _Changes | None:
    """What of a block the parent does not have anywhere; None where it has too little of it."""
    words = _words(data)
    moved = moves.find(words, block * PAGES)
    if not moved:
        return None
    new = np.ones(len(words), dtype=bool)
    for run in moved:
        new[run.page : run.page + run.pages] = False
    return _Changes.of(words, np.flatnonzero(new), moved)


def _is_new(base: PageReader, block: int, words: Words) -> bool:
    """Whether a block seems to have nothing of the parent's left: then that need not be read. A
    look at some pages tells; where it is wrong, more is stored than would have to be. So it is at
    seven: of a block in which every sixth page changed, three are new often enough to be felt."""
    last = base.block_size(block) // PAGE - 1
    if not 0 <= last < len(words):
        return False
    # Mostly the first one is as it was, and the others need not be read.
    looks = (0,), (last // 2, last), (last // 4, last * 3 // 4, last // 8, last * 5 // 8)
    return all(_are_new(base, block, words, *pages) for pages in looks)


def _are_new(base: PageReader, block: int, words: Words, *pages: int) -> bool:
    before = base.glance_at(block, *pages)
    return before is not None and all(
        np.count_nonzero(np.frombuffer(was, np.uint64) != words[page]) > _WORDS * 3 // 4
        for page, was in zip(pages, before, strict=True)
    )


def _batched(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    while batch := [*islice(items, size)]:
        yield batch


def _is_zero(data: Bytes) -> bool:
    # Looking at the beginning first settles it for almost all data that is not zero.
    if data.data[:64] != _ZEROS[: len(data)]:
        return False
    # Eight bytes at a time, and without making truth values of them, it takes a tenth of the time.
    return not (data.any() if len(data) % 8 else np.bitwise_or.reduce(data.view(np.uint64)))


def _words(data: Bytes, pages: int | None = None) -> Words:
    """Pages, a row each; what is missing of them is zero, and what is beyond is left out."""
    size = -(-len(data) // PAGE) * PAGE if pages is None else pages * PAGE
    if len(data) < size:
        whole = np.zeros(size, dtype=np.uint8)
        whole[: len(data)] = data
        data = whole
    return data[:size].view(np.uint64).reshape(-1, _WORDS)
