"""Reading and writing parts that are made of pages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.model.errors import Corrupt
from holdfast.store.arrays import np
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import ZERO_ID, Buffer, chunk_id
from holdfast.store.chunks.library import Library
from holdfast.store.chunks.sink import Sink
from holdfast.store.parts.blocks import BLOCK, HOLE, LEAF_BLOCKS, PAGE, PAGES, PageTable, pages_root
from holdfast.store.parts.part import PartRecord
from holdfast.store.parts.sources import WINDOW, Fetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

_BLOCKS_PER_WINDOW = WINDOW // BLOCK
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
        pages = self.assemble(block)[:size]
        if chunk_id(pages.data) != wanted:
            raise Corrupt(f"block {block} of part {self.part.name!r} does not match its checksum")
        return pages.data

    def padded(self, block: int) -> Bytes:
        """The block padded with zeros to its full size; raises Corrupt."""
        whole = self.table(block // LEAF_BLOCKS).whole(block % LEAF_BLOCKS)
        if whole is not None and self.block_size(block) == BLOCK:
            return np.frombuffer(self._library.get(whole), dtype=np.uint8)
        return self.assemble(block)

    def assemble(self, block: int) -> Bytes:
        """The block padded with zeros to its full size; each chunk is verified."""
        data = np.zeros(BLOCK, dtype=np.uint8)
        table = self.table(block // LEAF_BLOCKS)
        shared = table.shared_ids()
        own: dict[bytes, Buffer] = {}  # what no neighbour needs is not worth keeping
        for extent in table.extents(block % LEAF_BLOCKS):
            if extent.chunk in shared:
                plain = self._library.get_shared(extent.chunk)
            else:
                plain = own.get(extent.chunk) or self._library.get(extent.chunk)
                own[extent.chunk] = plain
            piece = np.frombuffer(plain, dtype=np.uint8)
            piece = piece[extent.at * PAGE : (extent.at + extent.pages) * PAGE]
            data[extent.page * PAGE : extent.page * PAGE + len(piece)] = piece
        return data


@dataclass(slots=True)
class Examined:
    """What examining one block found out. Neither `data` nor `changed`: it is as before."""

    hash: bytes
    pages: int
    data: Bytes | None = None  # to be stored whole, in order
    stored: bool = False  # is a chunk already
    changed: NDArray[np.intp] | None = None
    contents: Bytes | None = None  # the changed pages
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
        self._gathered = np.empty((PAGES, PAGE), dtype=np.uint8)
        self._gathered_count = 0
        self._waiting: list[tuple[PageTable, int]] = []  # tables whose chunk number awaits its id

    def write(self, windows: Iterator[Fetch]) -> tuple[int, bytes, list[bytes], set[bytes]]:
        """Returns bytes on the grid, the root, the encoded leaves, and the chunks in use."""
        running: deque[Future[tuple[list[Examined], int]]] = deque()
        total = 0
        block = 0
        index = 0
        try:
            for fetch in windows:
                running.append(workers.compute().submit(self._examine, fetch, index))
                index += _BLOCKS_PER_WINDOW
                if len(running) > 2 * workers.count():
                    block, total = self._take(running.popleft(), block, total)
            while running:
                block, total = self._take(running.popleft(), block, total)
        finally:
            wait(running)  # when the source fails, nothing may still be writing
        return total, *self._finished(block)

    def _finished(self, blocks: int) -> tuple[bytes, list[bytes], set[bytes]]:
        """The root, the encoded leaves, and the chunks in use, of so many blocks."""
        self._seal_gathered()
        # The last leaf was sized for a full one or for the parent's length.
        if self._tables:
            kept = blocks - (len(self._tables) - 1) * LEAF_BLOCKS
            self._tables[-1] = self._tables[-1].resized(kept)
        used = {chunk for table in self._tables for chunk in table.used_ids()}
        self._sink.refer(used, self._library.get)
        return pages_root(self._tables), [table.encode() for table in self._tables], used

    def _examine(self, fetch: Fetch, first: int) -> tuple[list[Examined], int]:
        # What is stored in order is still needed when the next window is fetched.
        window = np.frombuffer(fetch(not self._aligned), dtype=np.uint8)
        starts = range(0, len(window), BLOCK)
        return [
            self._examine_block(window[start : start + BLOCK], first + i)
            for i, start in enumerate(starts)
        ], len(window)

    def _examine_block(self, data: Bytes, block: int) -> Examined:
        pages = -(-len(data) // PAGE)
        if _is_zero(data):
            return Examined(ZERO_ID, pages)
        found = chunk_id(data.data)
        base = self._base if self._base is not None and block < self._base.block_count else None
        if base is not None:
            if base.hash(block) == found:
                return Examined(found, pages, same=True)
            changed = self._changed_pages(base, block, data, pages)
            if changed is not None:
                return Examined(found, pages, changed=changed, contents=_pages_of(data, changed))
        if self._aligned:
            return Examined(found, pages, data=data)  # in order, so that neighbours stay neighbours
        self._sink.put(data.data, chunk=found)
        return Examined(found, pages, stored=True)

    def _changed_pages(
        self, base: PageReader, block: int, data: Bytes, pages: int
    ) -> NDArray[np.intp] | None:
        """The pages that differ from the parent's; None when the block is better stored whole."""
        if base.run_count(block) > _MAX_RUNS:
            return None
        try:
            before = base.padded(block)
        except Corrupt:
            return None  # a damaged parent is no reason to lose the child
        now = _padded(data, pages)
        words = (pages, PAGE // 8)
        differs = now.view(np.uint64).reshape(words) != before[: pages * PAGE].view(
            np.uint64
        ).reshape(words)
        changed = np.flatnonzero(differs.any(axis=1))
        return changed if len(changed) <= PAGES // 2 else None

    def _take(
        self, future: Future[tuple[list[Examined], int]], block: int, total: int
    ) -> tuple[int, int]:
        """Enter a window's blocks into the tables, in order."""
        examined, size = future.result()
        for item in examined:
            self._enter(self._table(block), block % LEAF_BLOCKS, item)
            block += 1
        return block, total + size

    def _enter(self, table: PageTable, at: int, item: Examined) -> None:
        """What was found out about a block, into its table."""
        if item.hash == ZERO_ID:
            table.set_zero(at)
        elif item.changed is not None and item.contents is not None:
            self._gather(table, at, item.hash, item.changed, item.contents)
            table.chunk[at, item.pages :] = HOLE
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

    def _gather(
        self, table: PageTable, at: int, found: bytes, changed: NDArray[np.intp], contents: Bytes
    ) -> None:
        """Put changed pages together with those of other blocks into one chunk."""
        table.hashes[at] = found
        for page, content in zip(changed.tolist(), contents, strict=True):
            if _is_zero(content):
                table.chunk[at, page] = HOLE
                continue
            if not self._waiting or self._waiting[-1][0] is not table:
                self._waiting.append((table, table.number(ZERO_ID)))
            self._gathered[self._gathered_count] = content
            table.chunk[at, page] = self._waiting[-1][1]
            table.at[at, page] = self._gathered_count
            self._gathered_count += 1
            if self._gathered_count == PAGES:
                self._seal_gathered()

    def _seal_gathered(self) -> None:
        if self._gathered_count:
            data = self._gathered[: self._gathered_count].tobytes()
            chunk = self._sink.put(data, aligned=self._aligned)
            for table, number in self._waiting:
                table.ids[number] = chunk
        self._waiting = []
        self._gathered_count = 0


def _is_zero(data: Bytes) -> bool:
    # Looking at the beginning first settles it for almost all data that is not zero.
    if data[:64].any():
        return False
    # Eight bytes at a time take a fifth of the time.
    return not (data.any() if len(data) % 8 else data.view(np.uint64).any())


def _padded(data: Bytes, pages: int) -> Bytes:
    if len(data) == pages * PAGE:
        return data
    whole = np.zeros(pages * PAGE, dtype=np.uint8)
    whole[: len(data)] = data
    return whole


def _pages_of(data: Bytes, changed: NDArray[np.intp]) -> Bytes:
    pages = -(-len(data) // PAGE)
    picked: Bytes = _padded(data, pages).reshape(pages, PAGE)[changed]
    return picked
