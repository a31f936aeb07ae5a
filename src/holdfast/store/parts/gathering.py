"""Gathering: small pieces of several blocks, put together into one chunk."""

from __future__ import annotations

from holdfast.store.chunks.chunk import ZERO_ID, Buffer
from holdfast.store.chunks.sink import Sink
from holdfast.store.parts.blocks import BLOCK, PageTable


class Gathering:
    """Chunks in the making. Tables get a chunk's number at once, and its id when it is full."""

    def __init__(self, sink: Sink, aligned: bool) -> None:
        self._sink = sink
        self._aligned = aligned
        self._pieces: list[Buffer] = []
        self._size = 0
        self._waiting: list[tuple[PageTable, int]] = []  # tables whose chunk number awaits its id

    @property
    def room(self) -> int:
        """How many bytes go into the chunk before it is full."""
        return BLOCK - self._size

    def add(self, table: PageTable, data: Buffer) -> tuple[int, int]:
        """Returns the chunk's number in the table, and where in it the bytes begin."""
        if not self._waiting or self._waiting[-1][0] is not table:
            self._waiting.append((table, table.number(ZERO_ID)))
        number, at = self._waiting[-1][1], self._size
        self._pieces.append(data)
        self._size += len(data)
        if self.room <= 0:
            self.seal()
        return number, at

    def seal(self) -> None:
        """Store what there is."""
        if self._pieces:
            chunk = self._sink.put(b"".join(self._pieces), aligned=self._aligned)
            for table, number in self._waiting:
                table.ids[number] = chunk
        self._pieces = []
        self._size = 0
        self._waiting = []
