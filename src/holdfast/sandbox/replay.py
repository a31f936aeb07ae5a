"""Replay: the last output of one process, so that a client that comes back misses nothing.

Pieces end between characters: each can be shown on its own, and an offset always points between
two of them. Offsets count the bytes of both streams together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

LIMIT = 4 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Some output of one stream; `offset` is where it ends, `gap` what is missing before it."""

    stream: str
    data: bytes
    offset: int
    gap: int = 0

    @property
    def begin(self) -> int:
        return self.offset - len(self.data)


class Replay:
    """A bounded record of output."""

    def __init__(self, limit: int = LIMIT, start: int = 0) -> None:
        self._limit = limit
        self._pieces: deque[Piece] = deque()
        self._held = 0
        self._tails: dict[str, bytes] = {}
        self.end = start

    @property
    def start(self) -> int:
        """Where what is kept begins."""
        return self.end - self._held

    @property
    def tails(self) -> Mapping[str, bytes]:
        """The beginnings of characters that are not complete yet, per stream."""
        return self._tails

    def add(self, stream: str, data: bytes) -> None:
        data = self._tails.pop(stream, b"") + data
        tail = unfinished(data)
        if tail:
            self._tails[stream] = data[-tail:]
            data = data[:-tail]
        self._append(stream, data)

    def finish(self) -> None:
        """Nothing more comes: what looked like half a character is shown as it is."""
        for stream, data in sorted(self._tails.items()):
            self._append(stream, data)
        self._tails.clear()

    def after(self, offset: int) -> list[Piece]:
        """What came after an offset, as far as it is kept; the rest is the first one's gap."""
        found = [piece for piece in self._pieces if piece.offset > offset]
        if not found:
            return []
        first = found[0]
        begin = first.begin
        if begin < offset:  # an offset that somebody made up
            found[0] = Piece(first.stream, first.data[offset - begin :], first.offset)
        elif begin > offset:
            found[0] = Piece(first.stream, first.data, first.offset, gap=begin - offset)
        return found

    def _append(self, stream: str, data: bytes) -> None:
        if not data:
            return
        self.end += len(data)
        self._held += len(data)
        self._pieces.append(Piece(stream, data, self.end))
        while self._held > self._limit:
            self._held -= len(self._pieces.popleft().data)


def unfinished(data: bytes) -> int:
    """How many bytes at the end may be the beginning of one UTF-8 character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue  # inside a character: look for its beginning
        needed = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4
        return back if byte >= 0xC0 and byte < 0xF8 and back < needed else 0
    return 0
