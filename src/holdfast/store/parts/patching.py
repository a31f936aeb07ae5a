"""Patches: a part of pages like another one, but for some stretches. Nothing else is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from typing import TYPE_CHECKING

from holdfast.model.errors import BadInput
from holdfast.store.arrays import np
from holdfast.store.chunks import workers
from holdfast.store.chunks.library import Library
from holdfast.store.chunks.sink import Sink
from holdfast.store.parts.blocks import BLOCK, LEAF_BLOCKS
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.parts.pagewriter import Examined, PageWriter, Written

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    _Room = Callable[[int], Bytes]  # memory for the bytes of a block

# Where a stretch begins in the part, how long it is, and what fills memory with a piece of it, from
# an offset within the stretch on.
Fill = Callable[[int, memoryview], None]
Stretch = tuple[int, int, Fill]

_FEW = 4  # blocks that are not worth waking other threads up

# Fresh memory costs a page fault for every 4 KiB. Of a few blocks, each is done with before the
# next one is looked at, so that they take turns in the same place.
_scratch = threading.local()


def _new(size: int) -> Bytes:
    return np.empty(size, dtype=np.uint8)


def _taking_turns(size: int) -> Bytes:
    if not hasattr(_scratch, "block"):
        _scratch.block = _new(BLOCK)
    block: Bytes = _scratch.block
    return block[:size]


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
        first = [*islice(touched, _FEW + 1)]
        if len(first) <= _FEW:
            for each in first:
                block, item = self._patched(each, _taking_turns)
                self._enter(self._tables[block // LEAF_BLOCKS], block % LEAF_BLOCKS, item)
            return self._finished(count)
        ahead = 8 * workers.count()
        blocks = chain(first, touched)
        with closing(workers.in_order(self._patched, blocks, ahead)) as patched:
            for block, item in patched:
                self._enter(self._tables[block // LEAF_BLOCKS], block % LEAF_BLOCKS, item)
        return self._finished(count)

    def _patched(
        self, touched: tuple[int, list[_Piece]], room: _Room = _new
    ) -> tuple[int, Examined]:
        block, pieces = touched
        data = room(self._like.block_size(block))
        before: Bytes | None = None
        if sum(length for _, length, _, _ in pieces) < len(data):
            # Verified: what is kept of it is about to be vouched for by a new checksum.
            before = np.frombuffer(self._like.read(block), dtype=np.uint8)
            data[:] = before
        view = data.data
        for at, length, fill, where in pieces:
            fill(where, view[at : at + length])
        return block, self._examine_block(data, block, before)


# Within a block: where it begins, how long it is, what fills it, and from which offset on.
_Piece = tuple[int, int, Fill, int]


def _by_block(
    stretches: Iterable[Stretch], skew: int, total: int
) -> Iterator[tuple[int, list[_Piece]]]:
    """The blocks that are touched, in order, each with what is new in it."""
    current, pieces, end = -1, list[_Piece](), 0
    for offset, length, fill in stretches:
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
            pieces.append((at - block * BLOCK, step, fill, at - start))
            at += step
    if pieces:
        yield current, pieces
