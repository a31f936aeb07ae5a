"""A socket to another process, as frames: out when the other side takes them, in as they come.

Nobody waits for a write: a process that does not read must not hold its host up.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from holdfast.model.errors import Corrupt
from holdfast.protocol.frames import FrameDecoder

_WAITING = 4 << 20  # bytes that wait to be sent before `drained` waits
_READ = 1 << 18
_MOST_FDS = 8  # that may come with one read


class Link:
    """The host's end. Everything here happens on the event loop that made it."""

    def __init__(
        self,
        near: socket.socket,
        accept: Callable[[bytes], None],
        closed: Callable[[str], None],
        takes_files: bool = False,
    ) -> None:
        """`accept` takes each payload and may raise Corrupt; `closed` is told once, and why."""
        near.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._socket = near
        self._accept = accept
        self._closed = closed
        self._takes_files = takes_files
        self._decoder = FrameDecoder()
        self._outgoing: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._outgoing_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self.open = True
        self.files: deque[int] = deque()  # that came with what was read; whoever takes one owns it

    def begin(self) -> None:
        """Read from now on."""
        self._loop.add_reader(self._socket, self.read)

    def send(self, data: bytes, files: Sequence[int] = ()) -> None:
        """Write a frame as a whole, as soon as the other side takes it. Raises OSError when no
        more files can be open.

        `files` travel with it, and the caller may close its own at once: a frame that has to wait
        keeps duplicates, because a number may mean another file by the time it is sent.
        """
        if not self.open:
            return
        rest = memoryview(data)
        if not self._outgoing:
            rest, files = self._sent(rest, files)
        if rest:  # mostly the other side takes all of it at once
            self._outgoing.append((rest, _duplicates(files)))
            self._outgoing_bytes += len(rest)
            if len(self._outgoing) == 1:
                self._loop.add_writer(self._socket, self._write)
        if self._outgoing_bytes > _WAITING:
            self._room.clear()

    async def drained(self) -> None:
        """Wait until little waits to be sent, or nobody will read it."""
        await self._room.wait()

    def read(self) -> None:
        """Take all that is there now."""
        while self.open:
            try:
                data = self._receive()
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self._end("")
                return
            try:
                for payload in self._decoder.feed(data):
                    self._accept(payload)
            except Corrupt as error:
                self._end(str(error))
                return

    def close(self) -> None:
        """Let go of the socket; nobody is told."""
        if self._socket.fileno() < 0:
            return
        self._silence()
        self._socket.close()
        while self.files:
            os.close(self.files.popleft())

    def _receive(self) -> bytes:
        if not self._takes_files:
            return self._socket.recv(_READ)  # the kernel closes files that nobody asked for
        data, files, _, _ = socket.recv_fds(self._socket, _READ, _MOST_FDS)
        self.files.extend(files)
        return data

    def _write(self) -> None:
        while self._outgoing:
            data, files = self._outgoing[0]
            rest, left = self._sent(data, files)
            if not self._outgoing:
                return  # nobody reads it any more
            self._outgoing_bytes -= len(data) - len(rest)
            if not left:
                _close(files)
            if rest:
                self._outgoing[0] = rest, left
                break  # it goes on when there is room
            self._outgoing.popleft()
        else:
            self._loop.remove_writer(self._socket)
        if self._outgoing_bytes <= _WAITING:
            self._room.set()

    def _sent(self, data: memoryview, files: Sequence[int]) -> tuple[memoryview, Sequence[int]]:
        """What is left of a frame and its files when the other side has taken what it takes now."""
        try:
            while data:
                sent = (
                    socket.send_fds(self._socket, [data], list(files))
                    if files
                    else self._socket.send(data)
                )
                data, files = data[sent:], ()
        except BlockingIOError:
            pass
        except OSError:
            self._stop_sending()
            return data[:0], ()
        return data, files

    def _end(self, why: str) -> None:
        self._silence()
        self._closed(why)

    def _silence(self) -> None:
        self.open = False
        self._loop.remove_reader(self._socket)
        self._stop_sending()

    def _stop_sending(self) -> None:
        self._loop.remove_writer(self._socket)
        for _, files in self._outgoing:
            _close(files)
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._room.set()


def _duplicates(files: Sequence[int]) -> tuple[int, ...]:
    made: list[int] = []
    try:
        made.extend(map(os.dup, files))
    except OSError:
        _close(made)
        raise
    return tuple(made)


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)
