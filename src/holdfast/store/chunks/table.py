"""The table of a pack: which chunks it holds and where, sorted by id (spec, section 3).

One chunk is found in the bytes as they are: numpy takes longer to load than a few chunks take to be
read, and comes when many are asked for.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.store.arrays import np
from holdfast.store.chunks.chunk import ID_SIZE, Location

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.unsignedinteger]

ROW = 64  # bytes: the id, where it is and how long, seven zeros, a checksum
_WHERE = struct.Struct("<QIIB")
_EVERY = struct.Struct("<32sQIIB15x")
_CHECK = 8
_COLUMNS = [
    ("id", "V32"), ("offset", "<u8"), ("stored", "<u4"), ("plain", "<u4"), ("codec", "u1"),
    ("zeros", "V7"), ("check", "V8"),
]  # fmt: skip


class Table:
    """The rows of one pack."""

    def __init__(self, name: bytes, rows: bytes) -> None:
        self.name = name
        self.rows = rows

    @classmethod
    def of(cls, name: bytes, entries: Iterable[tuple[bytes, Location, bytes]]) -> Table:
        """Made of chunks, their places and the checksums of what is stored."""
        return cls(name, b"".join(_row(*entry) for entry in sorted(entries)))

    def __len__(self) -> int:
        return len(self.rows) // ROW

    def id(self, row: int) -> bytes:
        return self.rows[row * ROW : row * ROW + ID_SIZE]

    def location(self, row: int) -> Location:
        return Location(self.name, *_WHERE.unpack_from(self.rows, row * ROW + ID_SIZE))

    def places(self) -> Iterator[tuple[bytes, Location]]:
        """`__iter__`, in half the time."""
        name = self.name
        for chunk, offset, stored, plain, codec in _EVERY.iter_unpack(self.rows):
            yield chunk, Location(name, offset, stored, plain, codec)

    def check(self, row: int) -> bytes:
        """The checksum of what is stored."""
        return self.rows[(row + 1) * ROW - _CHECK : (row + 1) * ROW]

    def __iter__(self) -> Iterator[tuple[bytes, Location]]:
        return ((self.id(row), self.location(row)) for row in range(len(self)))

    def find(self, chunk: bytes) -> Iterator[Location]:
        """The places of a chunk, of which a pack has one, or none."""
        row = bisect_left(range(len(self)), chunk, key=self.id)
        while row < len(self) and self.id(row) == chunk:
            yield self.location(row)
            row += 1

    # -- for many at once ----------------------------------------------------------------

    @cached_property
    def ids(self) -> NDArray[np.uint64]:
        """The ids as four numbers each, which compare as the ids do."""
        numbers = np.frombuffer(self.rows, dtype=">u8").reshape(-1, ROW // 8)
        return numbers[:, : ID_SIZE // 8]

    def column(self, name: str) -> Column:
        """`offset`, `stored`, `plain` or `codec` of every row."""
        return self._columns[name]

    @cached_property
    def _columns(self) -> NDArray[np.void]:
        return np.frombuffer(self.rows, dtype=_COLUMNS)

    def locations(self, rows: NDArray[np.int32]) -> list[Location]:
        return [self.location(row) for row in rows.tolist()]


def _row(chunk: bytes, place: Location, check: bytes) -> bytes:
    return chunk + _WHERE.pack(*place[1:]) + bytes(7) + check
