"""Reading and writing parts that are made of pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.model.errors import Corrupt
from holdfast.store.arrays import np
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import ZERO_ID, Buffer, chunk_id
from holdfast.store.chunks.library import Library
from holdfast.store.chunks.sink import Sink
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
from holdfast.store.parts.part import PartRecord
from holdfast.store.parts.sources import WINDOW, Fetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

Item = TypeVar("Item")

_WORDS = PAGE // 8

_BLOCKS_PER_WINDOW = WINDOW // BLOCK
# Windows for one task where most blocks will be as before, which is found out so quickly that
# handing a window to a thread would take a good part of the time.
_QUICK = 4
# Beyond that many runs of pages a block is stored whole again: it keeps reading fast, and
# keeps chunks of gathered pages from staying alive for a single page.
_MAX_RUNS = 3 * PAGES // 4


class PageReader:
    """Assembles the blocks of one part."""

    def __init__(self, library: Library, part: PartRecord) -> None:
        self.part = part
        self.total = part.skew + part.size  # bytes on the page grid
        self.block_count = -(-self.total // BLOCK)
        self._library = library
        self._leaf_ids = part.leaf_ids()
        self._tables: dict[int, PageTable] = {}
        self._extents: dict[int, list[list[Extent]]] = {}

    def table(self, leaf: int) -> PageTable:
        found = self._tables.get(leaf)
        if found is None:
            data = self.part.map if self.part.inline else self._library.get(self._leaf_ids[leaf])
            found = self._tables[leaf] = PageTable.decode(data)
            if len(found) != min(LEAF_BLOCKS, self.block_count - leaf * LEAF_BLOCKS):
                raise Corrupt(f"the map of part {self.part.name!r} has the wrong length")
        return found

    def tables(self) -> list[PageTable]:
        return [self.table(leaf) for leaf in range(-(-self.block_count // LEAF_BLOCKS))]

    def hash(self, block: int) -> bytes:
        return self.table(block // LEAF_BLOCKS).hashes[block % LEAF_BLOCKS]

    def run_count(self, block: int) -> int:
        return self.table(block // LEAF_BLOCKS).run_count(block % LEAF_BLOCKS)

    def block_size(self, block: int) -> int:
        return min(BLOCK, self.total - block * BLOCK)

    def read(self, block: int) -> Buffer:
        """The block's bytes, verified."""
        wanted = self.hash(block)
        size = self.block_size(block)
        if wanted == ZERO_ID:
            return bytes(size)
        if self.table(block // LEAF_BLOCKS).whole(block % LEAF_BLOCKS) is not None:
            whole = self._library.get(wanted)
            if len(whole) != size:
                raise Corrupt(f"block {block} of part {self.part.name!r} has the wrong length")
            return whole
        # The block's own hash verifies all that goes into it. Only where that fails are the chunks
        # looked at one by one, to find the damaged one, or another copy of it.
        for get in (self._library.peek, self._library.get):
            pages = self._assemble(block, get)[:size]
            if chunk_id(pages.data) == wanted:
                return pages.data
        raise Corrupt(f"block {block} of part {self.part.name!r} does not match its checksum")

    def assemble(self, block: int) -> Bytes:
        """The block padded with zeros to its full size: its chunks verified, not the whole."""
        return self._assemble(block, self._library.get)

    def _assemble(self, block: int, get: Callable[[bytes], Buffer]) -> Bytes:
        data = np.zeros(BLOCK, dtype=np.uint8)
        leaf, number = divmod(block, LEAF_BLOCKS)
        table = self.table(leaf)
        if (extents := self._extents.get(leaf)) is None:
            extents = self._extents[leaf] = table.all_extents()
        shared = table.shared_ids()
        own: dict[bytes, Buffer] = {}  # what no neighbour needs is not worth keeping
        for extent in extents[number]:
            if extent.chunk in shared:
                plain = self._library.get_shared(extent.chunk)
            else:
                plain = own.get(extent.chunk) or get(extent.chunk)
                own[extent.chunk] = plain
            piece = np.frombuffer(plain, dtype=np.uint8)
            piece = piece[extent.at * PAGE : (extent.at + extent.pages) * PAGE]
            data[extent.page * PAGE : extent.page * PAGE + len(piece)] = piece
        return data


class _Changes(NamedTuple):
    """The pages of a block that are not as before."""

    zero: NDArray[np.intp]  # those that became zero
    other: NDArray[np.intp]
    contents: NDArray[np.uint64]  # of the others, a row each


@dataclass(slots=True)
class Examined:
    """What examining one block found out. Neither `data` nor `changed`: it is as before."""

    hash: bytes
    pages: int
    data: Bytes | None = None  # to be stored whole, in order
    stored: bool = False  # is a chunk already
    changed: _Changes | None = None
    same: bool = False


class PageWriter:
    """Writes one part; `base` is the parent's part on the same page grid, where there is one."""

    def __init__(
        self, sink: Sink, library: Library, base: PageReader | None, aligned: bool
    ) -> None:
        self._sink = sink
        self._library = library
        self._base = base
        self._aligned = aligned
        self._tables: list[PageTable] = []
        self._gathered = np.empty((PAGES, _WORDS), dtype=np.uint64)
        self._gathered_count = 0
        self._waiting: list[tuple[PageTable, int]] = []  # tables whose chunk number awaits its id

    def write(self, windows: Iterator[Fetch]) -> tuple[int, bytes, list[bytes], set[bytes]]:
        """Returns bytes on the grid, the root, the encoded leaves, and the chunks in use."""
        total = 0
        block = 0
        numbered = zip(windows, count(step=_BLOCKS_PER_WINDOW))
        tasks = _batched(numbered, _QUICK if self._base is not None else 1)
        with closing(workers.in_order(self._examine, tasks, 2 * workers.count())) as examined:
            for blocks, size in examined:
                for item in blocks:
                    self._enter(self._table(block), block % LEAF_BLOCKS, item)
                    block += 1
                total += size
        return total, *self._finished(block)

    def _finished(self, blocks: int) -> tuple[bytes, list[bytes], set[bytes]]:
        """The root, the encoded leaves, and the chunks in use, of so many blocks."""
        self._seal_gathered()
        # The last leaf was sized for a full one or for the parent's length.
        if self._tables:
            kept = blocks - (len(self._tables) - 1) * LEAF_BLOCKS
            if len(self._tables[-1]) != kept:
                self._tables[-1] = self._tables[-1].resized(kept)
        used = {chunk for table in self._tables for chunk in table.used_ids()}
        self._sink.refer(used, self._library.get)
        return pages_root(self._tables), [table.encode() for table in self._tables], used

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
        if base is not None:
            if base.hash(block) == found:
                return Examined(found, pages, same=True)
            changed = self._changes(base, block, _fitted(data, pages * PAGE), before)
            if changed is not None:
                return Examined(found, pages, changed=changed)
        if self._aligned:
            return Examined(found, pages, data=data)  # in order, so that neighbours stay neighbours
        self._sink.put(data.data, chunk=found)
        return Examined(found, pages, stored=True)

    def _changes(
        self, base: PageReader, block: int, now: Bytes, before: Bytes | None
    ) -> _Changes | None:
        """How a block differs from the parent's; None when it is better stored whole."""
        if base.run_count(block) > _MAX_RUNS:
            return None
        words = _words(now)
        if base.hash(block) == ZERO_ID:
            differs = np.bitwise_or.reduce(words, axis=1) != 0
        else:
            try:
                before = np.frombuffer(base.read(block), np.uint8) if before is None else before
            except Corrupt:
                return None  # a damaged parent is no reason to lose the child
            differs = (words != _words(_fitted(before, len(now)))).any(axis=1)
        changed = differs.nonzero()[0]
        if len(changed) > PAGES // 2:
            return None
        contents = words[changed]
        used = np.bitwise_or.reduce(contents, axis=1) != 0
        if used.all():
            return _Changes(changed[:0], changed, contents)
        return _Changes(changed[~used], changed[used], contents[used])

    def _enter(self, table: PageTable, at: int, item: Examined) -> None:
        """What was found out about a block, into its table."""
        if item.hash == ZERO_ID:
            table.set_zero(at)
        elif item.changed is not None:
            table.hashes[at] = item.hash
            if len(item.changed.zero):
                table.chunk[at, item.changed.zero] = HOLE
            if item.pages < PAGES:
                table.chunk[at, item.pages :] = HOLE
            self._gather(table, at, item.changed)
        elif not item.same:
            if item.data is not None:
                self._sink.put(item.data.data, chunk=item.hash, aligned=True)
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
            if not self._waiting or self._waiting[-1][0] is not table:
                self._waiting.append((table, table.number(ZERO_ID)))
            start = self._gathered_count
            count = min(len(pages), PAGES - start)
            self._gathered[start : start + count] = contents[:count]
            table.chunk[at, pages[:count]] = self._waiting[-1][1]
            table.at[at, pages[:count]] = np.arange(start, start + count)
            self._gathered_count += count
            if self._gathered_count == PAGES:
                self._seal_gathered()
            pages, contents = pages[count:], contents[count:]

    def _seal_gathered(self) -> None:
        if self._gathered_count:
            data = self._gathered[: self._gathered_count].tobytes()
            chunk = self._sink.put(data, aligned=self._aligned)
            for table, number in self._waiting:
                table.ids[number] = chunk
        self._waiting = []
        self._gathered_count = 0


def _batched(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    while batch := [*islice(items, size)]:
        yield batch


def _is_zero(data: Bytes) -> bool:
    # Looking at the beginning first settles it for almost all data that is not zero.
    if data[:64].any():
        return False
    # Eight bytes at a time, and without making truth values of them, it takes a tenth of the time.
    return not (data.any() if len(data) % 8 else np.bitwise_or.reduce(data.view(np.uint64)))


def _words(data: Bytes) -> NDArray[np.uint64]:
    """Whole pages, a row each."""
    return data.view(np.uint64).reshape(-1, _WORDS)


def _fitted(data: Bytes, size: int) -> Bytes:
    """Cut to a length, or filled up with zeros."""
    if len(data) >= size:
        return data[:size]
    whole = np.zeros(size, dtype=np.uint8)
    whole[: len(data)] = data
    return whole
