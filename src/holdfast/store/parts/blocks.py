"""Blocks and pages: the extent maps of memory images and arrays (spec, section 5).

A part is cut into blocks of 64 pages. Where few pages of a block changed since the parent, only
those are stored, gathered with others into chunks; everything else keeps pointing at the chunks
that hold it already, also where it only moved, if somebody looks for that. Where few words on most
pages changed, a delta is laid on the block. What decides that a page is unchanged is a comparison
with its bytes.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import add, le
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.model.errors import Corrupt
from holdfast.model.once import once
from holdfast.store.arrays import distinct, np
from holdfast.store.chunks.chunk import ID_SIZE, ZERO_ID, Buffer
from holdfast.store.parts.part import split_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    # The number of each page's chunk, and which page of it; both by block and page.
    Pages = tuple[NDArray[np.int32], NDArray[np.uint16]]

PAGE = 4096
PAGES = 64
BLOCK = PAGE * PAGES
LEAF_BLOCKS = 256
HOLE = -1

_FEW = 4  # runs of one chunk
_SINGLE = 8  # blocks that are counted one by one, before all of them are

_UNFOLDING = threading.Lock()

# An extent's fields, stored column by column: equal columns compress, equal rows are rare.
_COLUMNS = [("block", "u1"), ("page", "u1"), ("pages", "u1"), ("chunk", "<u2"), ("at", "<u2")]
_LAYERS = [("block", "u1"), ("chunk", "<u2"), ("at", "<u4")]
# The same as `struct` has them: who only maps a part does not wait for numpy.
_EXTENT, _LAYER = "BBBHH", "BHI"


class _Leaf(msgspec.Struct, frozen=True, array_like=True):
    hashes: bytes
    chunks: bytes
    extents: bytes
    layers: bytes = b""


_decoder = msgspec.msgpack.Decoder(_Leaf)


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of pages of one block, and where they are: page `at` of a chunk onwards."""

    page: int
    pages: int
    chunk: bytes
    at: int


class Runs(NamedTuple):
    """Runs of pages as columns: first page, how many, the chunk's number, first page in it."""

    page: NDArray[np.intp]
    pages: NDArray[np.intp]
    chunk: NDArray[np.int32]
    at: NDArray[np.int64]


class Folded(NamedTuple):
    """The same without numpy."""

    page: list[int]
    pages: list[int]
    chunk: list[int]
    at: list[int]

    def in_order(self) -> bool:
        """Whether they are as `encode` writes them: none is empty, leaves its block or overlaps."""
        if not self.page:
            return True
        inside = map(add, [page % PAGES for page in self.page], self.pages)
        return (
            min(self.pages) > 0
            and max(inside) <= PAGES
            and all(map(le, map(add, self.page, self.pages), self.page[1:]))
        )

    def runs(self) -> Runs:
        return Runs(
            np.array(self.page, dtype=np.intp),
            np.array(self.pages, dtype=np.intp),
            np.array(self.chunk, dtype=np.int32),
            np.array(self.at, dtype=np.int64),
        )


class PageTable:
    """One leaf, opened up: for each page, which chunk it is in and where.

    One that was read stays folded, as runs of pages, until somebody asks for a page: who maps a
    part needs nothing but the runs.
    """

    def __init__(self, count: int) -> None:
        self.hashes: list[bytes] = [ZERO_ID] * count
        self.ids: list[bytes] = []
        self._pages: Pages | None = None
        self._folded: Folded | None = None
        # For some blocks the deltas that lie on them: a chunk's number, and the first byte in it.
        self.layers: dict[int, list[tuple[int, int]]] = {}
        self.homes: dict[bytes, bytes] = {}  # volumes that chunks were last found in
        self._numbers: dict[bytes, int] | None = None  # of chunks, where somebody asked for them
        self._run_counts: dict[int, int] = {}  # of blocks that somebody asked for
        self._shared: frozenset[bytes] | None = None
        self._scattered: frozenset[bytes] | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def chunk(self) -> NDArray[np.int32]:
        """The number of each page's chunk, by block and page."""
        return self._unfolded()[0]

    @property
    def at(self) -> NDArray[np.uint16]:
        """Which page of its chunk each page is."""
        return self._unfolded()[1]

    def _unfolded(self) -> Pages:
        # A table that was read belongs to many: whoever comes second must find what the first
        # one unfolded, and never the moment between.
        if self._pages is None:
            with _UNFOLDING:
                if self._pages is None:
                    self._pages = self._unfold()
        return self._pages

    def _unfold(self) -> Pages:
        chunk = np.full((len(self), PAGES), HOLE, dtype=np.int32)
        at = np.zeros((len(self), PAGES), dtype=np.uint16)
        if self._folded is not None:
            runs = self._folded.runs()
            # For every page that a run covers: which run, and from that all else.
            run = np.repeat(np.arange(len(runs.page), dtype=np.int32), runs.pages)
            where = np.arange(len(run), dtype=np.int32)
            where += (runs.page - (np.cumsum(runs.pages) - runs.pages)).astype(np.int32)[run]
            chunk.reshape(-1)[where] = runs.chunk[run]
            at.reshape(-1)[where] = where + (runs.at - runs.page).astype(np.int32)[run]
        return chunk, at

    def resized(self, count: int) -> PageTable:
        """A copy for `count` blocks; new ones are zero."""
        if count == len(self):
            return self._copied()
        table = PageTable(count)
        keep = min(count, len(self))
        table.hashes[:keep] = self.hashes[:keep]
        table.ids = list(self.ids)
        table.chunk[:keep] = self.chunk[:keep]
        table.at[:keep] = self.at[:keep]
        table.layers = {block: [*found] for block, found in self.layers.items() if block < keep}
        table.homes = self.homes.copy()
        return table

    def _copied(self) -> PageTable:
        table = PageTable(0)
        table.hashes, table.ids = [*self.hashes], [*self.ids]
        table._pages = self.chunk.copy(), self.at.copy()
        table.layers = {block: [*found] for block, found in self.layers.items()}
        table.homes = self.homes.copy()
        return table

    def number(self, chunk: bytes) -> int:
        """A number for a chunk in this table."""
        self.ids.append(chunk)
        return len(self.ids) - 1

    def set_zero(self, block: int) -> None:
        self.hashes[block] = ZERO_ID
        self.chunk[block] = HOLE
        self.layers.pop(block, None)

    def set_whole(self, block: int, chunk: bytes, pages: int) -> None:
        """The block is one chunk."""
        self.layers.pop(block, None)
        self.hashes[block] = chunk
        self.chunk[block] = HOLE
        self.chunk[block, :pages] = self.number(chunk)
        self.at[block, :pages] = np.arange(pages)

    def set_extents(self, block: int, extents: Iterable[Extent]) -> None:
        """The block is made of these, and has holes elsewhere."""
        self.layers.pop(block, None)
        self.chunk[block] = HOLE
        if self._numbers is None:
            self._numbers = {chunk: number for number, chunk in enumerate(self.ids)}
        for extent in extents:
            if (number := self._numbers.get(extent.chunk)) is None:
                number = self._numbers[extent.chunk] = self.number(extent.chunk)
            pages = slice(extent.page, extent.page + extent.pages)
            self.chunk[block, pages] = number
            self.at[block, pages] = np.arange(extent.at, extent.at + extent.pages)

    def runs(self) -> Runs:
        """Every run of pages of the leaf, in order, without holes."""
        folded = self._folded if self._pages is None else None  # unfolded, it may be changed
        return self._found_runs() if folded is None else folded.runs()

    def folded(self) -> Folded:
        """The same without numpy, where the leaf is as it was read."""
        folded = self._folded if self._pages is None else None
        if folded is None:
            folded = Folded(*(column.tolist() for column in self._found_runs()))
        return folded

    def end(self) -> int:
        """The page behind the last that is no hole."""
        folded = self.folded()
        return max(map(add, folded.page, folded.pages), default=0)

    def _found_runs(self) -> Runs:
        flat, at = self.chunk.reshape(-1), self.at.reshape(-1)
        starts, ends = _runs(flat, at)
        real = flat[starts] != HOLE
        starts, ends = starts[real], ends[real]
        return Runs(starts, ends - starts, flat[starts], at[starts].astype(np.int64))

    def all_extents(self) -> list[list[Extent]]:
        """`extents` of every block, for who will need most of them."""
        found: list[list[Extent]] = [[] for _ in range(len(self))]
        for first, pages, number, at in zip(*self.folded(), strict=True):
            block, page = divmod(first, PAGES)
            found[block].append(Extent(page, pages, self.ids[number], at))
        return found

    def extents(self, block: int) -> Iterator[Extent]:
        """The block's runs of pages, in order; holes are left out."""
        chunk, at = self.chunk[block], self.at[block]
        starts, ends = _runs(chunk, at)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if chunk[start] != HOLE:
                yield Extent(start, end - start, self.ids[chunk[start]], int(at[start]))

    def page_places(self, block: int) -> list[tuple[bytes, int] | None]:
        """For each page of a block: chunk and page in it, or None for a hole."""
        return [
            None if chunk == HOLE else (self.ids[chunk], at)
            for chunk, at in zip(self.chunk[block].tolist(), self.at[block].tolist(), strict=True)
        ]

    def run_count(self, block: int) -> int:
        """How many runs a block has, holes included; asked only of tables that are complete."""
        found = self._run_counts.get(block)
        if found is None:
            if len(self._run_counts) < _SINGLE:
                chunk, at = self.chunk[block], self.at[block]
                if (chunk == chunk[0]).all() and (at == _in_order()).all():
                    found = 1  # as nearly always
                else:
                    found = len(_runs(chunk, at)[0])
                self._run_counts[block] = found
            else:
                starts, _ = _runs(self.chunk.reshape(-1), self.at.reshape(-1))
                counts = np.bincount(starts // PAGES, minlength=len(self)).tolist()
                self._run_counts = dict(enumerate(counts))
                found = self._run_counts[block]
        return found

    def whole(self, block: int) -> bytes | None:
        """The one chunk that is this block, where that is so."""
        if block in self.layers:
            return None
        found = self.hashes[block]
        number = int(self.chunk[block, 0])
        if number == HOLE or self.ids[number] != found:
            return None
        return found if self.run_count(block) <= 2 else None

    def shared_ids(self) -> frozenset[bytes]:
        """Chunks that several blocks have pages of; asked only of tables that are complete."""
        if self._shared is None:
            rows = np.arange(len(self), dtype=np.int64)[:, None]
            pairs = distinct(self.chunk * np.int64(LEAF_BLOCKS) + rows)  # holes are negative
            uses = np.bincount(pairs[pairs >= 0] // LEAF_BLOCKS)
            self._shared = frozenset(self.ids[i] for i in np.flatnonzero(uses > 1).tolist())
        return self._shared

    def scattered_ids(self) -> frozenset[bytes]:
        """Chunks that more than a few runs are of, so that they are better read once than piece by
        piece; asked only of tables that are complete."""
        if self._scattered is None:
            uses = Counter(self.folded().chunk)
            self._scattered = frozenset(self.ids[i] for i, count in uses.items() if count > _FEW)
        return self._scattered

    def encode(self) -> tuple[bytes, list[bytes]]:
        """The leaf as it is stored, and the chunks that it uses."""
        runs = self.runs()
        over = [(b, *each) for b, found in sorted(self.layers.items()) for each in found]
        numbers = np.array([number for _, number, _ in over], dtype=np.int32)
        used = distinct(np.append(runs.chunk, numbers))
        ids = [self.ids[i] for i in used.tolist()]
        rows = np.zeros(len(runs.page), dtype=_COLUMNS)
        rows["block"], rows["page"] = runs.page // PAGES, runs.page % PAGES
        rows["pages"] = runs.pages
        rows["chunk"] = np.searchsorted(used, runs.chunk)
        rows["at"] = runs.at
        leaf = [b"".join(self.hashes), b"".join(ids), _columns(rows)]
        if over:
            layers = np.array(over, dtype=_LAYERS)
            layers["chunk"] = np.searchsorted(used, numbers)
            leaf.append(_columns(layers))
        return msgspec.msgpack.encode(leaf), ids

    @classmethod
    def decode(cls, data: Buffer) -> PageTable:
        try:
            leaf = _decoder.decode(data)
            block, page, pages, chunk, at = _unpacked(leaf.extents, _EXTENT)
            layers = _unpacked(leaf.layers, _LAYER)
        except (msgspec.MsgspecError, ValueError) as error:
            raise Corrupt(f"the map of a part cannot be read: {error}") from None
        if len(leaf.hashes) % ID_SIZE or len(leaf.chunks) % ID_SIZE:
            raise Corrupt("the map of a part has ids of the wrong length")
        count = len(leaf.hashes) // ID_SIZE
        table = cls(count)
        table.hashes = split_ids(leaf.hashes)
        table.ids = split_ids(leaf.chunks)
        first = [at * PAGES + inside for at, inside in zip(block, page, strict=True)]
        end = max(map(add, first, pages), default=0)
        if end > count * PAGES or max(chunk, default=-1) >= len(table.ids):
            raise Corrupt("the map of a part points outside of it")
        for under, number, start in zip(*layers, strict=True):
            if under >= count or number >= len(table.ids):
                raise Corrupt("the map of a part lays deltas outside of it")
            table.layers.setdefault(under, []).append((number, start))
        table._folded = Folded(first, [*pages], [*chunk], [*at])
        if not table._folded.in_order():
            table._unfolded()  # somebody else's: the last that covers a page has it
        return table


@once
def _in_order() -> NDArray[np.uint16]:
    """The pages of a block that is one chunk."""
    return np.arange(PAGES, dtype=np.uint16)


def _columns(rows: NDArray[np.void]) -> bytes:
    """Rows of fields as columns."""
    return b"".join(rows[name].tobytes() for name in rows.dtype.names or ())


def _unpacked(packed: bytes, columns: str) -> list[tuple[int, ...]]:
    """The inverse, column by column; raises ValueError when they do not fit."""
    count, left = divmod(len(packed), struct.calcsize("<" + columns))
    if left:
        raise ValueError("the extents are cut short")
    found, at = [], 0
    for form in columns:
        column = struct.Struct(f"<{count}{form}")
        found.append(column.unpack_from(packed, at))
        at += column.size
    return found


def _runs(
    chunk: NDArray[np.int32], at: NDArray[np.uint16]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Starts and ends of runs of pages that follow each other in one chunk and one block."""
    breaks = np.ones(len(chunk), dtype=bool)
    follows = (at[1:] == at[:-1] + 1) | (chunk[1:] == HOLE)
    breaks[1:] = (chunk[1:] != chunk[:-1]) | ~follows
    breaks[::PAGES] = True
    starts = np.flatnonzero(breaks)
    ends = np.append(starts[1:], len(chunk))
    return starts, ends


def pages_root(tables: list[PageTable]) -> bytes:
    hasher = blake3()
    for table in tables:
        hasher.update(b"".join(table.hashes))
    return hasher.digest()
