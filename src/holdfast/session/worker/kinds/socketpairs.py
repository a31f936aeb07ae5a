"""Pairs of sockets of which the session has both ends: made anew, with all that was not read yet.

Which sockets belong together the kernel tells (`sock_diag`); where it does not, nothing is guessed.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import stat
import struct
import termios
from typing import NamedTuple

from holdfast.session.worker.kinds.contract import Reduction
from holdfast.session.worker.kinds.descriptors import borrowed, descriptors
from holdfast.session.worker.kinds.pairs import LARGEST, Ends, Pair, Pairs, key_of

# From linux/netlink.h, linux/sock_diag.h and linux/unix_diag.h, which Python has no names for.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_UDIAG_SHOW_PEER, _UNIX_DIAG_PEER, _UNIX_DIAG_SHUTDOWN = 4, 2, 6
_HEADER, _REQUEST, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBHIIIII"), "=HH"
_ANY = 0xFFFFFFFF
_SHUT_READ = 1  # of what the kernel says is shut; 2 is writing
_SO_PEEK_OFF = 42


def socket_pair(
    kind: int,
    protocol: int,
    unread: tuple[bytes, bytes],
    shut: tuple[int, int],
    rooms: tuple[int, int],
    closed: tuple[int, ...],
) -> Ends:
    """A pair with these bytes to be read. Raises OSError where they do not fit."""
    both = socket.socketpair(socket.AF_UNIX, kind, protocol)
    for side, each in enumerate(both):
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) != rooms[side]:
            # The kernel doubles what it is told.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, rooms[side] // 2)
        each.setblocking(False)
    for side, data in enumerate(unread):
        with memoryview(data) as left:
            sent = 0
            while sent < len(left):
                sent += both[1 - side].send(left[sent:])
    for side, each in enumerate(both):
        if shut[side] and not closed:
            each.shutdown(shut[side] - 1)  # SHUT_RD, SHUT_WR and SHUT_RDWR
        each.setblocking(True)
    made = Ends(both[0].detach(), both[1].detach())
    for side in closed:
        made.close(side)
    return made


class SocketPair(Pair):
    """A pair of sockets as a capture finds it."""

    kind, protocol = 0, 0
    unread, shut, rooms = (b"", b""), (0, 0), (0, 0)

    def __reduce__(self) -> Reduction:
        closed = tuple(self.closed)
        return socket_pair, (self.kind, self.protocol, self.unread, self.shut, self.rooms, closed)


class _State(NamedTuple):
    """What the kernel says about a socket."""

    peer: int | None  # the inode at the other end; 0 when that is closed
    shut: int


def is_end(fd: int, found: os.stat_result) -> bool:
    """Whether this is a socket that is connected to one without a name, as it is itself."""
    if not stat.S_ISSOCK(found.st_mode):
        return False
    with borrowed(fd) as looked:
        try:
            names = looked.getpeername(), looked.getsockname()
        except OSError:
            return False  # it is not connected
        return looked.family == socket.AF_UNIX and not any(names)


def caught(fd: int) -> Pair:
    """The pair that a socket belongs to, as it is now; the first key is that of side 0."""
    found = os.fstat(fd)
    try:
        own = _state(found.st_ino)
        peer = own.peer
        if peer is None:
            return Pair(reason="a socket of which the kernel does not tell the other end")
        ends = {found.st_ino: fd}
        if peer:
            ends |= {each.st_ino: at for at, each in descriptors() if each.st_ino == peer
                     and each.st_dev == found.st_dev}  # fmt: skip
            if len(ends) < 2:
                return Pair(reason="a socket connected to another process is not brought back")
        return _looked(sorted(ends.items()), found.st_dev)
    except OSError as error:
        return Pair(reason=f"a connected socket that cannot be looked at: {error}")


def _looked(ends: list[tuple[int, int]], device: int) -> Pair:
    pair = SocketPair(*((device, inode) for inode, _ in ends))
    unread, shut, rooms = [b"", b""], [0, 0], [0, 0]
    for side, (inode, fd) in enumerate(ends):
        shut[side] = _state(inode).shut
        with borrowed(fd) as found:
            pair.kind, pair.protocol = int(found.type), found.proto
            rooms[side] = found.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            data = _unread(found, shut[side])
        if isinstance(data, str):
            pair.reason = data
        else:
            unread[side] = data
    if len(ends) == 1:
        pair.closed.add(1)
        rooms[1] = rooms[0]
    pair.unread, pair.shut = (unread[0], unread[1]), (shut[0], shut[1])
    pair.rooms = rooms[0], rooms[1]
    return pair


def _unread(found: socket.socket, shut: int) -> bytes | str:
    """What waits to be read, left where it is; a text says why that cannot be."""
    waiting = select.poll()
    waiting.register(found, select.POLLIN)
    if not any(events & select.POLLIN for _, events in waiting.poll(0)):
        return b""
    (size,) = struct.unpack("i", fcntl.ioctl(found, termios.FIONREAD, bytes(4)))
    if found.type != socket.SOCK_STREAM:
        if shut & _SHUT_READ and not size:
            return b""
        return "messages wait in it, which cannot be read without taking them"
    if size > LARGEST:
        return f"more than {LARGEST} bytes wait in it"
    if not size:
        return b""
    if found.getsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF) != -1:
        return "it is being peeked into"
    data, _, flags, _ = found.recvmsg(size, 0, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    if len(data) != size or flags & socket.MSG_CTRUNC:
        return "what waits in it is more than bytes"
    return data


def _state(inode: int) -> _State:
    """Raises OSError where the kernel does not tell."""
    asked = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ANY, inode, _UDIAG_SHOW_PEER, _ANY, _ANY)
    header = _HEADER.pack(_HEADER.size + len(asked), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1)
        kernel.send(header + asked)
        said = kernel.recv(1 << 16)
    size, kind, *_ = _HEADER.unpack_from(said)
    if kind != _SOCK_DIAG_BY_FAMILY:
        (error,) = struct.unpack_from("=i", said, _HEADER.size)
        raise OSError(-error, os.strerror(-error))
    attributes: dict[int, bytes] = {}
    at = _HEADER.size + 16  # behind what a socket always has
    while at < size:
        length, name = struct.unpack_from(_ATTRIBUTE, said, at)
        attributes[name] = said[at + 4 : at + length]
        at += (length + 3) & ~3
    peer = attributes.get(_UNIX_DIAG_PEER)
    return _State(
        None if peer is None else int.from_bytes(peer, "little"),
        attributes.get(_UNIX_DIAG_SHUTDOWN, b"\0")[0],
    )


def side_of(pairs: Pairs, fd: int) -> tuple[Pair, int]:
    """The pair of a socket, and which of its ends it is."""
    pair = pairs.of(fd, caught)
    return pair, 0 if not pair.keys or pair.keys[0] == key_of(os.fstat(fd)) else 1
