"""The switch: carries connections between the loopback inside and the host, over its own streams.

The host asks it to connect to a port of the loopback; where it was told to listen, it tells the
host of whoever connects there. It runs as the user of the sandbox and decides nothing: what may
be reached, from either side, is decided outside. Frames: a byte of kind, the number of the
connection, the length of what follows (spec/sandbox-v1.md, section 2).
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
from typing import NoReturn

OPEN, DATA, END, CREDIT, CLOSE, READY = range(1, 7)
HEAD = struct.Struct(">BII")
WINDOW = 128 * 1024  # bytes of one direction of one connection that nobody has taken yet
PIECE = 32 * 1024
MOST = 64  # connections at once


class Call:
    """One connection."""

    def __init__(self, number: int, link: socket.socket) -> None:
        self.number = number
        self.link = link
        self.credit = WINDOW  # what the host still takes
        self.waiting = bytearray()  # what the program has not taken yet
        self.read_ended = False  # the program says no more
        self.host_ended = False  # the host says no more
        self.connecting = False


class Switch:
    """The loop and its connections."""

    def __init__(self, port: int) -> None:
        self.calls: dict[int, Call] = {}
        self.out = bytearray()
        self.buffer = bytearray()
        self.next = 1  # the host has the even numbers
        self.selector = selectors.DefaultSelector()
        for fd in (0, 1):
            os.set_blocking(fd, False)
        self.selector.register(0, selectors.EVENT_READ, None)
        self.door: socket.socket | None = None
        if port:
            self.door = socket.create_server(("127.0.0.1", port), backlog=MOST)
            self.door.setblocking(False)
            self.selector.register(self.door, selectors.EVENT_READ, None)

    def run(self) -> NoReturn:
        self.send(READY, 0)
        while True:
            for key, events in self.selector.select():
                if key.fd == 0:
                    self.listen()
                elif key.fd == 1:
                    self.flush()
                elif key.fileobj is self.door:
                    self.accept()
                else:
                    self.serve(key.data, events)

    # -- the host

    def send(self, kind: int, number: int, data: bytes = b"") -> None:
        self.out += HEAD.pack(kind, number, len(data)) + data
        self.flush()

    def flush(self) -> None:
        try:
            while self.out:
                del self.out[: os.write(1, self.out[:65536])]
        except BlockingIOError:
            self.look(1, selectors.EVENT_WRITE, None)
            return
        self.forget(1)

    def listen(self) -> None:
        block = os.read(0, 1 << 18)
        if not block:
            os._exit(0)
        self.buffer += block
        while len(self.buffer) >= HEAD.size:
            kind, number, length = HEAD.unpack_from(self.buffer)
            if len(self.buffer) < HEAD.size + length:
                break
            data = bytes(self.buffer[HEAD.size : HEAD.size + length])
            del self.buffer[: HEAD.size + length]
            self.obey(kind, number, data)

    def obey(self, kind: int, number: int, data: bytes) -> None:
        if kind == OPEN:
            self.connect(number, int(data))
            return
        call = self.calls.get(number)
        if call is None:
            return  # it has ended meanwhile
        if kind == DATA:
            call.waiting += data
        elif kind == END:
            call.host_ended = True
        elif kind == CREDIT:
            call.credit += int.from_bytes(data, "big")
        elif kind == CLOSE:
            self.end(call, tell=False)
            return
        self.feed(call)

    # -- the programs

    def connect(self, number: int, port: int) -> None:
        link = socket.socket()
        link.setblocking(False)
        call = self.calls[number] = Call(number, link)
        call.connecting = True
        try:
            link.connect(("127.0.0.1", port))
        except BlockingIOError:
            self.watch(call)
            return
        except OSError as error:
            self.end(call, str(error.strerror))
            return
        self.connected(call)

    def connected(self, call: Call) -> None:
        call.connecting = False
        error = call.link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self.end(call, os.strerror(error))
            return
        self.send(OPEN, call.number)
        self.feed(call)

    def accept(self) -> None:
        assert self.door is not None
        try:
            link, _ = self.door.accept()
        except OSError:
            return  # it left again
        if len(self.calls) >= MOST:
            link.close()
            return
        link.setblocking(False)
        call = self.calls[self.next] = Call(self.next, link)
        self.next += 2
        self.send(OPEN, call.number)
        self.watch(call)

    def serve(self, call: Call, events: int) -> None:
        if self.calls.get(call.number) is not call:
            return
        if call.connecting:
            self.connected(call)
            return
        if events & selectors.EVENT_WRITE:
            self.feed(call)
        if events & selectors.EVENT_READ and call.number in self.calls:
            self.carry(call)

    def carry(self, call: Call) -> None:
        try:
            data = call.link.recv(min(PIECE, call.credit))
        except BlockingIOError:
            return
        except OSError:
            self.end(call)
            return
        if data:
            call.credit -= len(data)
            self.send(DATA, call.number, data)
        else:
            call.read_ended = True
            self.send(END, call.number)
        self.settle(call)

    def feed(self, call: Call) -> None:
        if call.connecting:
            return
        try:
            if call.waiting:
                count = call.link.send(call.waiting)
                del call.waiting[:count]
                self.send(CREDIT, call.number, count.to_bytes(4, "big"))
            if call.host_ended and not call.waiting:
                call.link.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            self.end(call)
            return
        self.settle(call)

    def settle(self, call: Call) -> None:
        """Go on watching it, or let it go when both sides have said everything."""
        if call.read_ended and call.host_ended and not call.waiting:
            self.end(call)
        else:
            self.watch(call)

    def watch(self, call: Call) -> None:
        events = 0
        if call.connecting or call.waiting:
            events |= selectors.EVENT_WRITE
        if not call.connecting and not call.read_ended and call.credit > 0:
            events |= selectors.EVENT_READ
        if events:
            self.look(call.link.fileno(), events, call)
        else:
            self.forget(call.link.fileno())

    def end(self, call: Call, why: str = "", *, tell: bool = True) -> None:
        self.calls.pop(call.number, None)
        self.forget(call.link.fileno())
        call.link.close()
        if tell:
            self.send(CLOSE, call.number, why.encode())

    # -- the selector

    def look(self, fd: int, events: int, what: Call | None) -> None:
        try:
            self.selector.modify(fd, events, what)
        except KeyError:
            self.selector.register(fd, events, what)

    def forget(self, fd: int) -> None:
        try:
            self.selector.unregister(fd)
        except KeyError:
            return


def switch(port: str) -> NoReturn:
    try:
        Switch(int(port)).run()
    except (OSError, ValueError) as error:
        os.write(2, str(error).encode())
        os._exit(1)
