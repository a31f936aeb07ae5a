"""The control socket as the worker sees it: blocking, one message at a time."""

from __future__ import annotations

import select
import socket
from collections import deque

from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.session_messages import (
    HostMessage,
    Message,
    PartMessage,
    decode_host,
    frame,
)
from holdfast.session.worker.interrupts import Interrupts


class Channel:
    """Reads and writes whole frames, whatever signal arrives in between."""

    def __init__(self, control: socket.socket, interrupts: Interrupts) -> None:
        self._control = control
        self._interrupts = interrupts
        self._decoder = FrameDecoder()
        self._arrived: deque[bytes] = deque()

    def close(self) -> None:
        """Leave the socket to the process that it belongs to."""
        self._control.close()

    def receive(self) -> HostMessage | None:
        """The next message, or None when the host is gone."""
        while not self._arrived:
            # Waiting may be interrupted; reading may not, or bytes would be lost.
            select.select([self._control], [], [])
            with self._interrupts.shielded():
                data = self._control.recv(1 << 18)
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

    def receive_parts(self, count: int) -> dict[str, bytes] | None:
        """Read so many whole parts, or None when the host is gone."""
        parts: dict[str, bytearray] = {}
        complete = 0
        while complete < count:
            message = self.receive()
            if message is None:
                return None
            if isinstance(message, PartMessage):
                parts.setdefault(message.name, bytearray()).extend(message.data)
                complete += message.last
        return {name: bytes(data) for name, data in parts.items()}
