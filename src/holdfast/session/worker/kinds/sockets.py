"""Sockets: one that is neither bound nor connected is made again, and so is a pair of which the
session has both ends; others lead to somebody."""

from __future__ import annotations

import os
import socket
from typing import Any

from holdfast.session.worker.kinds import socketpairs
from holdfast.session.worker.kinds.contract import Recorder, Reduction
from holdfast.session.worker.kinds.descriptors import borrowed
from holdfast.session.worker.kinds.pairs import End, Ends, Pairs

# What may be set before a socket is used, and is asked for again afterwards.
_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_REUSEADDR), (socket.SOL_SOCKET, socket.SO_REUSEPORT),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.SOL_SOCKET, socket.SO_BROADCAST),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY),
)  # fmt: skip

_FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)

# In a copy of the process: where its sockets led to, before it gave them up.
given_up: dict[int, str] = {}


def unused(
    family: int, kind: int, protocol: int, timeout: float | None, options: list[tuple[int, int]]
) -> socket.socket:
    """A socket that is neither bound nor connected; options by their place in the list here."""
    return _set(socket.socket(family, kind, protocol), timeout, options)


def end(
    ends: Ends, side: int, timeout: float | None, options: list[tuple[int, int]]
) -> socket.socket:
    """One of a pair."""
    return _set(socket.socket(fileno=ends.take(side)), timeout, options)


def _set(
    made: socket.socket, timeout: float | None, options: list[tuple[int, int]]
) -> socket.socket:
    for at, value in options:
        made.setsockopt(*_OPTIONS[at], value)
    made.settimeout(timeout)
    return made


def closed(family: int, kind: int, protocol: int) -> socket.socket:
    """A socket that has been closed."""
    made = socket.socket(family, kind, protocol)
    made.close()
    return made


def reduce_socket(recorder: Recorder, obj: Any) -> Reduction:  # a `socket.socket`, loaded or not
    """By what it is connected or bound to, if it is."""
    made = (int(obj.family), int(obj.type), obj.proto)
    if obj.fileno() == -1:
        return closed, made
    if obj.fileno() in recorder.pairs:
        return _end(recorder, obj)
    if obj.family not in _FAMILIES:
        return recorder.hole(obj, "a socket of this family is not brought back")
    where = given_up.get(obj.fileno()) or leads(obj)
    if where:
        return recorder.hole(obj, f"a socket {where} is not brought back")
    if socketpairs.is_end(obj.fileno(), os.fstat(obj.fileno())):
        return _end(recorder, obj)
    return unused, (*made, obj.gettimeout(), _options(obj))


def leads(found: socket.socket) -> str:
    """What a socket is connected or bound to; nothing for others, and for one of a pair."""
    if found.family not in _FAMILIES:
        return ""
    try:
        peer = found.getpeername()
    except OSError:
        own = found.getsockname()
        # A port of 0, or no path: it was not bound.
        bound = own[1] if found.family != socket.AF_UNIX else own
        return f"bound to {_shown(own)}" if bound else ""
    if found.family == socket.AF_UNIX and not peer and not found.getsockname():
        return ""
    return f"connected to {_shown(peer)}"


def _end(recorder: Recorder, obj: Any) -> Reduction:
    pair, side, options = recorder.pairs.end(obj.fileno(), look)
    if pair.reason:
        return recorder.hole(obj, pair.reason)
    recorder.end(pair, side)
    recorder.note("a new pair of sockets, with what was not read; no other process has it open")
    return end, (pair, side, obj.gettimeout(), options)


def look(pairs: Pairs, fd: int) -> End:
    """The end that a descriptor is, with its options."""
    with borrowed(fd) as found:
        return End(*socketpairs.side_of(pairs, fd), _options(found))


def _options(obj: Any) -> list[tuple[int, int]]:
    options = []
    for at, (level, name) in enumerate(_OPTIONS):
        try:
            options.append((at, obj.getsockopt(level, name)))
        except OSError:
            continue  # not an option of this family
    return options


def _shown(address: object) -> str:
    if isinstance(address, tuple):
        return ":".join(str(each) for each in address[:2])
    return str(address) or "another socket"
