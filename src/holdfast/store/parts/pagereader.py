"""Reading parts that are made of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.model.errors import Corrupt
from holdfast.store.arrays import np
from holdfast.store.chunks.chunk import ZERO_ID, Buffer, chunk_id
from holdfast.store.chunks.library import Library
from holdfast.store.parts import deltas
from holdfast.store.parts.blocks import BLOCK, LEAF_BLOCKS, PAGE, PAGES, Extent, PageTable
from holdfast.store.parts.part import PartRecord
from holdfast.store.parts.recall import Tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]


class PageReader:
    """Assembles the blocks of one part."""

    def __init__(self, library: Library, part: PartRecord, recall: Tables | None = None) -> None:
        """Tables that can be recalled are not read."""
        self.part = part
        self.total = part.skew + part.size  # bytes on the page grid
        self.block_count = -(-self.total // BLOCK)
        self._library = library
        self._leaf_ids = part.leaf_ids()
        self._recall = recall
        self._tables: dict[int, PageTable] = {}
        self._extents: dict[int, list[list[Extent]]] = {}

    def table(self, leaf: int) -> PageTable:
        found = self._tables.get(leaf)
        if found is None:
            found = self._tables[leaf] = self._recalled(leaf) or self._read(leaf)
            if len(found) != min(LEAF_BLOCKS, self.block_count - leaf * LEAF_BLOCKS):
                raise Corrupt(f"the map of part {self.part.name!r} has the wrong length")
        return found

    def _recalled(self, leaf: int) -> PageTable | None:
        if self._recall is None or self.part.inline:
            return None
        return self._recall.get(self._leaf_ids[leaf])

    def _read(self, leaf: int) -> PageTable:
        data = self.part.map if self.part.inline else self._library.get(self._leaf_ids[leaf])
        found = PageTable.decode(data)
        # Whoever maps the part makes room for its pages and no more.
        if found.end() > -(-self.total // PAGE) - leaf * LEAF_BLOCKS * PAGES:
            raise Corrupt(f"the map of part {self.part.name!r} points outside of it")
        return found

    def tables(self) -> list[PageTable]:
        return [self.table(leaf) for leaf in range(-(-self.block_count // LEAF_BLOCKS))]

    def hash(self, block: int) -> bytes:
        return self.table(block // LEAF_BLOCKS).hashes[block % LEAF_BLOCKS]

    def layer_count(self, block: int) -> int:
        """How many deltas lie on a block."""
        return len(self.table(block // LEAF_BLOCKS).layers.get(block % LEAF_BLOCKS, ()))

    def layers(self, block: int) -> list[tuple[bytes, int]]:
        """The deltas that lie on a block: a chunk, and the first byte in it."""
        table = self.table(block // LEAF_BLOCKS)
        found = table.layers.get(block % LEAF_BLOCKS, ())
        return [(table.ids[number], at) for number, at in found]

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
        for trusting in (True, False):
            pages = self._assemble(block, trusting)[:size]
            if chunk_id(pages.data) == wanted:
                return pages.data
        raise Corrupt(f"block {block} of part {self.part.name!r} does not match its checksum")

    def glance(self, block: int) -> Buffer:
        """The block's bytes, verified by nobody: for who only guesses by them. Raises Corrupt."""
        whole = self.table(block // LEAF_BLOCKS).whole(block % LEAF_BLOCKS)
        if whole is not None:
            return self._library.peek(whole)
        return self._assemble(block, trusting=True)[: self.block_size(block)].data

    def glance_at(self, block: int, *pages: int) -> list[Buffer] | None:
        """Some of its pages, verified by nobody, where they can be had without the others."""
        whole = self.table(block // LEAF_BLOCKS).whole(block % LEAF_BLOCKS)
        if whole is None:
            return None
        return self._library.peek_into(whole, PAGE, *(page * PAGE for page in pages))

    def assemble(self, block: int) -> Bytes:
        """The block padded with zeros to its full size: its chunks verified, not the whole."""
        return self._assemble(block, trusting=False)

    def bare(self, block: int) -> Bytes:
        """What the block's deltas lie on, the same way."""
        return self._extended(block, trusting=False)

    def _assemble(self, block: int, trusting: bool) -> Bytes:
        data = self._extended(block, trusting)
        table = self.table(block // LEAF_BLOCKS)
        for number, at in table.layers.get(block % LEAF_BLOCKS, ()):
            deltas.apply(data.view(np.uint64), self._library.get_shared(table.ids[number]), at)
        return data

    def _extended(self, block: int, trusting: bool) -> Bytes:
        """The block without deltas. `trusting`: nobody compares its chunks with their ids."""
        data = np.zeros(BLOCK, dtype=np.uint8)
        leaf, number = divmod(block, LEAF_BLOCKS)
        table = self.table(leaf)
        if (extents := self._extents.get(leaf)) is None:
            extents = self._extents[leaf] = table.all_extents()
        scattered = table.scattered_ids()
        own: dict[bytes, Buffer] = {}  # what no neighbour needs is not worth keeping
        for extent in extents[number]:
            start, size = extent.at * PAGE, extent.pages * PAGE
            peeked = None
            if trusting and extent.chunk not in scattered:
                peeked = self._library.peek_into(extent.chunk, size, start)
            if peeked is not None:
                [found] = peeked
            else:
                found = memoryview(self._chunk(table, extent.chunk, own, trusting))
                found = found[start : start + size]
            at = extent.page * PAGE
            data[at : at + len(found)] = np.frombuffer(found, dtype=np.uint8)
        return data

    def _chunk(
        self, table: PageTable, chunk: bytes, own: dict[bytes, Buffer], trusting: bool
    ) -> Buffer:
        if chunk in table.shared_ids():
            return self._library.get_shared(chunk)
        if chunk not in own:
            own[chunk] = self._library.peek(chunk) if trusting else self._library.get(chunk)
        return own[chunk]
