"""Patches: a part of pages like another one, but for some stretches. Nothing else is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.model.errors import BadInput
from holdfast.store.arrays import np
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import Buffer
from holdfast.store.chunks.library import Library
from holdfast.store.chunks.sink import Sink
from holdfast.store.parts.blocks import BLOCK, LEAF_BLOCKS
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.parts.pagewriter import Examined, PageWriter, Written

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Where a stretch begins in the part, how long it is, and what reads a piece of it: given an offset
# within the stretch and a length.
Fetch = Callable[[int, int], Buffer]
Stretch = tuple[int, int, Fetch]

_FEW = 4  # blocks that are not worth waking other threads up


class PatchWriter(PageWriter):
    """Writes a part that is mostly its base."""

    def __init__(self, sink: Sink, library: Library, base: PageReader, aligned: bool) -> None:
        super().__init__(sink, library, base, aligned)
        self._like = base

    def patch(self, stretches: Iterable[Stretch]) -> Written:
        """Returns what was written. Raises Corrupt."""
        count = self._like.block_count
        self._tables = [table.resized(len(table)) for table in self._like.tables()]
        touched = _by_block(stretches, self._like.part.skew, self._like.total)
        ahead = 8 * workers.count()
        with closing(workers.in_order(self._patched, touched, ahead, _FEW)) as patched:
            for block, item in patched:
                self._enter(self._tables[block // LEAF_BLOCKS], block % LEAF_BLOCKS, item)
        return self._finished(count)

    def _patched(self, touched: tuple[int, list[_Piece]]) -> tuple[int, Examined]:
        block, pieces = touched
        size = self._like.block_size(block)
        data: NDArray[np.uint8]
        before: NDArray[np.uint8] | None = None
        if pieces[0][1] == size:
            _, _, fetch, where = pieces[0]
            data = np.frombuffer(fetch(where, size), dtype=np.uint8)
            return block, self._examine_block(data, block)
        if sum(length for _, length, _, _ in pieces) == size:
            data = np.empty(size, dtype=np.uint8)
        else:
            # Verified: what is kept of it is about to be vouched for by a new checksum.
            before = np.frombuffer(self._like.read(block), dtype=np.uint8)
            data = before.copy()
        for at, length, fetch, where in pieces:
            data[at : at + length] = np.frombuffer(fetch(where, length), dtype=np.uint8)
        return block, self._examine_block(data, block, before)


# Within a block: where it begins, how long it is, what reads it, and from which offset on.
_Piece = tuple[int, int, Fetch, int]


def _by_block(
    stretches: Iterable[Stretch], skew: int, total: int
) -> Iterator[tuple[int, list[_Piece]]]:
    """The blocks that are touched, in order, each with what is new in it."""
    current, pieces, end = -1, list[_Piece](), 0
    for offset, length, fetch in stretches:
        start = skew + offset
        if length < 0 or start < end or start + length > total:
            raise BadInput("the stretches of a patch overlap, or lie outside of the part")
        end = start + length
        at = start
        while at < end:
            block = at // BLOCK
            if block != current:
                if pieces:
                    yield current, pieces
                current, pieces = block, []
            step = min(end, (block + 1) * BLOCK) - at
            pieces.append((at - block * BLOCK, step, fetch, at - start))
            at += step
    if pieces:
        yield current, pieces
