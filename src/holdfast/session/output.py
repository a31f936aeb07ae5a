"""Output of a worker: both pipes, read whenever there is something, decoded piece by piece."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable

from holdfast.protocol.session_messages import Stream

_READ = 1 << 16


class Pipe:
    """The host's end of a worker's stdout or stderr."""

    def __init__(self, stream: Stream, deliver: Callable[[Stream, str], None]) -> None:
        self.stream: Stream = stream
        self._deliver = deliver
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.fd, False)
        self.open = True

    def drain(self, final: bool = False) -> None:
        """Deliver all that is there now. `final` ends a character that was cut short."""
        while self.open:
            try:
                data = os.read(self.fd, _READ)
            except BlockingIOError:
                break
            if not data:
                self.open = False
                break
            self._hand_over(self._decoder.decode(data))
        if final:
            self._hand_over(self._decoder.decode(b"", final=True))
            self._decoder.reset()

    def close_writer(self) -> None:
        """The worker has its own copy now."""
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
