"""The control socket as the worker sees it: blocking, one message at a time."""

from __future__ import annotations

import select
import socket
from collections import deque

from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.session_messages import (
    HostMessage,
    MappingMessage,
    Message,
    PartMessage,
    decode_host,
    frame,
)
from holdfast.session.worker.interrupts import Interrupts

_MOST_FILES = 253  # that may come with one read


class Channel:
    """Reads and writes whole frames, whatever signal arrives in between."""

    def __init__(self, control: socket.socket, interrupts: Interrupts) -> None:
        self._control = control
        self._interrupts = interrupts
        self._decoder = FrameDecoder()
        self._arrived: deque[bytes] = deque()
        self.files: deque[int] = deque()  # that came along; whoever takes one closes it

    def close(self) -> None:
        """Leave the socket to the process that it belongs to."""
        self._control.close()

    def receive(self) -> HostMessage | None:
        """The next message, or None when the host is gone."""
        while not self._arrived:
            # Waiting may be interrupted; reading may not, or bytes would be lost.
            select.select([self._control], [], [])
            with self._interrupts.shielded():
                data, files, _, _ = socket.recv_fds(self._control, 1 << 18, _MOST_FILES)
                self.files.extend(files)
                if not data:
                    return None
                self._arrived.extend(self._decoder.feed(data))
        return decode_host(self._arrived.popleft())

    def send(self, message: Message, file: int | None = None) -> None:
        """Write one message as a whole; a file may travel with it."""
        with self._interrupts.shielded():
            data = frame(message)
            sent = 0 if file is None else socket.send_fds(self._control, [data], [file])
            self._control.sendall(data[sent:])

    def receive_parts(
        self, count: int
    ) -> tuple[dict[str, bytes], dict[str, MappingMessage]] | None:
        """Read so many whole parts and mappings, or None when the host is gone."""
        parts: dict[str, bytearray] = {}
        mapped: dict[str, MappingMessage] = {}
        complete = 0
        while complete < count:
            message = self.receive()
            if message is None:
                return None
            if isinstance(message, PartMessage):
                parts.setdefault(message.name, bytearray()).extend(message.data)
                complete += message.last
            elif isinstance(message, MappingMessage):
                mapped[message.name] = message
                complete += 1
        return {name: bytes(data) for name, data in parts.items()}, mapped
