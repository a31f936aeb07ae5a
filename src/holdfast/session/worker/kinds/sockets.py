"""Sockets: one that is neither bound nor connected is made again, and so is a pair of which the
session has both ends; others lead to somebody."""

from __future__ import annotations

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

# In a copy of the process: what its sockets were bound to, before it gave them up.
given_up: dict[int, Any] = {}


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
    if obj.family not in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
        return recorder.hole(obj, "a socket of this family is not brought back")
    try:
        peer = obj.getpeername()
    except OSError:
        own = given_up.get(obj.fileno()) or obj.getsockname()
        # A port of 0, or no path: it was not bound.
        if own[1] if obj.family != socket.AF_UNIX else own:
            return recorder.hole(obj, f"a socket bound to {_shown(own)} is not brought back")
    else:
        if peer or obj.getsockname() or obj.family != socket.AF_UNIX:
            return recorder.hole(obj, f"a socket connected to {_shown(peer)} is not brought back")
        return _end(recorder, obj)
    return unused, (*made, obj.gettimeout(), _options(obj))


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
