"""The control socket as the worker sees it: blocking, one message at a time.

It is used as the interpreter has it: the module `socket` takes 3 ms to load, with all that it needs
for other uses, and whoever brings a session back waits for that.
"""

from __future__ import annotations

import _socket
import select
import struct
import sys
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
_FILE = struct.Struct("@i")
_ROOM = _socket.CMSG_LEN(_MOST_FILES * _FILE.size)
_RIGHTS = _socket.SOL_SOCKET, _socket.SCM_RIGHTS


class Channel:
    """Reads and writes whole frames, whatever signal arrives in between."""

    def __init__(self, control: _socket.socket, interrupts: Interrupts) -> None:
        self._control = control
        self._waiting = select.poll()  # not `select`, which takes no number above 1023
        self._waiting.register(control, select.POLLIN)
        self._interrupts = interrupts
        self._decoder = FrameDecoder()
        self._arrived: deque[bytes] = deque()
        self.files: deque[int] = deque()  # that came along; whoever takes one closes it

    def close(self) -> None:
        """Leave the socket to the process that it belongs to."""
        self._control.close()

    def wait(self, seconds: float | None = None) -> bool:
        """Until there is a message, while nothing of the session's runs; whether there is one. What
        one of its handlers of signals raises then has nowhere to go but stderr, as at Python's own
        prompt."""
        while not self._arrived:
            try:
                found = self._waiting.poll(None if seconds is None else seconds * 1000)
                return True if found else False  # noqa: SIM210  # `bool` may be the session's
            except Exception as error:
                if error.__traceback__ is None or error.__traceback__.tb_next is None:
                    raise  # of this call itself
                sys.__excepthook__(type(error), error, error.__traceback__.tb_next)
        return True

    def receive(self) -> HostMessage | None:
        """The next message, or None when the host is gone."""
        while not self._arrived:
            # Waiting may be interrupted; reading may not, or bytes would be lost.
            self._waiting.poll()
            with self._interrupts.shielded():
                data, beside, _, _ = self._control.recvmsg(1 << 18, _ROOM)
                for level, kind, content in beside:
                    if (level, kind) == _RIGHTS:
                        whole = content[: len(content) // _FILE.size * _FILE.size]
                        self.files.extend(fd for (fd,) in _FILE.iter_unpack(whole))
                if not data:
                    return None
                self._arrived.extend(self._decoder.feed(data))
        return decode_host(self._arrived.popleft())

    def send(self, message: Message, file: int | None = None) -> None:
        """Write one message as a whole; a file may travel with it."""
        with self._interrupts.shielded():
            data = frame(message)
            sent = 0
            if file is not None:
                sent = self._control.sendmsg([data], [(*_RIGHTS, _FILE.pack(file))])
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
