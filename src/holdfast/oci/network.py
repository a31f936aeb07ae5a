"""Looking at and changing the network of a container from outside."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_NEW_NET = 0x40000000  # CLONE_NEWNET
_SOCK_DIAG, _BY_FAMILY, _DUMP = 4, 20, 0x301  # NETLINK_SOCK_DIAG and its one request
_HEAD = struct.Struct("=IHHII")
_ASK = struct.Struct("=BBHIIII4x")  # unix_diag_req
_TOLD = struct.Struct("=BBBBI8x")  # unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")
_SHOW_PEER, _PEER = 4, 2
_ESTABLISHED = "01"
_ERROR, _DONE = 2, 3

T = TypeVar("T")


def inside(pid: int, work: Callable[[], T]) -> T:
    """Do something in the network of a process; raises what it raises, and OSError."""
    results: list[T] = []
    failures: list[Exception] = []

    def enter() -> None:
        try:
            space = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(space, _NEW_NET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(space)
            results.append(work())
        except Exception as error:  # noqa: BLE001  raised again by the caller
            failures.append(error)

    # A thread of its own: entering a namespace concerns one thread, and this one ends with it.
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def established(pid: int) -> set[int]:
    """The inodes of TCP connections in the network of a process."""
    found = set()
    for name in ("tcp", "tcp6"):
        path = Path(f"/proc/{pid}/net/{name}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == _ESTABLISHED:
                found.add(int(fields[9]))
    return found


def unix_peers(pid: int) -> dict[int, int]:
    """Which unix socket is connected to which, by inode, as the network of a process knows them."""
    return inside(pid, _unix_peers)


def _unix_peers() -> dict[int, int]:
    request = _ASK.pack(socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_PEER, 0)
    head = _HEAD.pack(_HEAD.size + len(request), _BY_FAMILY, _DUMP, 1, 0)
    peers: dict[int, int] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as link:
        link.settimeout(5)
        link.sendto(head + request, (0, 0))
        while True:
            data = link.recv(65536)
            at = 0
            while at < len(data):
                length, kind, *_ = _HEAD.unpack_from(data, at)
                if kind in (_DONE, _ERROR):
                    return peers
                inode = _TOLD.unpack_from(data, at + _HEAD.size)[4]
                peer = _peer(data[at + _HEAD.size + _TOLD.size : at + length])
                if peer:
                    peers[inode] = peer
                at += (length + 3) & ~3


def _peer(attributes: bytes) -> int | None:
    at = 0
    while at + _ATTRIBUTE.size <= len(attributes):
        length, kind = _ATTRIBUTE.unpack_from(attributes, at)
        if kind == _PEER:
            return int(struct.unpack_from("=I", attributes, at + _ATTRIBUTE.size)[0])
        at += max(_ATTRIBUTE.size, (length + 3) & ~3)
    return None
