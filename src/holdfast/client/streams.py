"""Streams: what a process wrote, read as it comes or all at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from holdfast.model.errors import HoldfastError

# So much may wait to be read before the process is made to wait: bytes, or characters of text.
MOST_UNREAD = 8 << 20


class Stream:
    """One output of a process. Text, or bytes where the execution asked for base64."""

    def __init__(self, binary: bool = False, taken: Callable[[], None] | None = None) -> None:
        self._binary = binary
        self._taken = taken  # called when something was read
        self._pieces: deque[str | bytes] = deque()
        self._unread = 0
        self._unlimited = False
        self._ended = False
        self._error: HoldfastError | None = None  # what ended it early
        self._changed = asyncio.Event()
        self.missing = 0  # bytes that were lost while nobody was connected

    def feed(self, piece: str | bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._unread += len(piece)
            self._changed.set()

    def finish(self, error: HoldfastError | None = None) -> None:
        """No more comes; with an error, there would have been more."""
        self._ended = True
        self._error = error
        self._changed.set()

    @property
    def unread(self) -> int:
        """How much waits for a reader."""
        return 0 if self._unlimited else self._unread

    @property
    def full(self) -> bool:
        return self.unread >= MOST_UNREAD

    def lift(self) -> None:
        """Whoever waits for the end of the process instead of reading must not wait for ever."""
        self._unlimited = True

    async def read(self) -> str | bytes:
        """What is there, or comes next; empty at the end. Raises what ended it early, when all that
        came was read."""
        while not self._pieces and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        if not self._pieces and self._error is not None:
            raise self._error
        taken = list(self._pieces)
        self._pieces.clear()
        self._unread = 0
        if self._taken is not None:
            self._taken()
        return b"".join(taken) if self._binary else "".join(taken)  # type: ignore[arg-type]

    async def read_all(self) -> str | bytes:
        """Everything that has not been read yet, until the process ends. Raises what ended it
        early; what came is then still there for `read`."""
        parts: list[str | bytes] = []
        try:
            while part := await self.read():
                parts.append(part)
        except BaseException:  # a reader who is cancelled loses nothing either
            self._pieces.extendleft(reversed(parts))
            self._unread += sum(map(len, parts))
            raise
        return b"".join(parts) if self._binary else "".join(parts)  # type: ignore[arg-type]

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        """Pieces as they come. Raises what ended it early, behind all that came."""
        while part := await self.read():
            yield part
