"""Output of a worker: both pipes, read whenever there is something, decoded piece by piece."""

from __future__ import annotations

import codecs
import fcntl
import os
from collections import deque
from collections.abc import Callable

from holdfast.protocol.session_messages import Stream

_READ = 1 << 16
EARLY_LIMIT = 8 << 20  # what is kept of output that comes while no cell runs
_PIECE = 256  # what a piece costs beside its text


class Early:
    """Output of the time between cells, of bounded size: the oldest goes first."""

    def __init__(self, limit: int = EARLY_LIMIT) -> None:
        self._pieces: deque[tuple[Stream, str]] = deque()
        self._size = 0
        self._limit = limit
        self.dropped = 0  # characters

    def add(self, stream: Stream, text: str) -> None:
        self._pieces.append((stream, text))
        self._size += len(text) + _PIECE
        while self._size > self._limit:
            _, oldest = self._pieces.popleft()
            self._size -= len(oldest) + _PIECE
            self.dropped += len(oldest)

    def take(self) -> list[tuple[Stream, str]]:
        """All that was kept; then there is nothing."""
        pieces = list(self._pieces)
        self._pieces.clear()
        self._size = self.dropped = 0
        return pieces


class Pipe:
    """The host's end of a worker's stdout or stderr."""

    def __init__(self, stream: Stream, deliver: Callable[[Stream, str], None]) -> None:
        self.stream: Stream = stream
        self._deliver = deliver
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.fd, False)
        self._capacity = fcntl.fcntl(self.fd, fcntl.F_GETPIPE_SZ)
        self.open = True

    def drain(self, final: bool = False) -> None:
        """Deliver all that is there now. `final` ends a character that was cut short.

        What is there now fits into the pipe: somebody who writes for ever is not read for ever.
        """
        left = self._capacity
        while self.open and left > 0:
            try:
                data = os.read(self.fd, _READ)
            except BlockingIOError:
                break
            if not data:
                self.open = False
                break
            left -= len(data)
            self._hand_over(self._decoder.decode(data))
        if final:
            self._hand_over(self._decoder.decode(b"", final=True))
            self._decoder.reset()

    def close_writer(self) -> None:
        """The worker has its own copy now. May be called twice."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
        self.write_fd = -1

    def close(self) -> None:
        self.open = False
        for fd in (self.fd, self.write_fd):
            if fd >= 0:
                os.close(fd)
        self.fd = self.write_fd = -1

    def _hand_over(self, text: str) -> None:
        if text:
            self._deliver(self.stream, text)
