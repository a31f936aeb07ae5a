"""Memory that a capture hands over: stretches that came along, or that lie in a copy's memory."""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import dataclass, field

from holdfast.model.errors import CaptureFailed, Corrupt
from holdfast.protocol.session_messages import MemoryMessage
from holdfast.store.parts.patching import Fetch, Stretch
from holdfast.store.parts.sources import Span

_libc = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _read(process: int, address: int, length: int, into: bytearray) -> int:
    here = _Vector(ctypes.addressof(ctypes.c_char.from_buffer(into)), length)
    there = _Vector(address, length)
    found: int = _libc.process_vm_readv(
        process, ctypes.byref(here), 1, ctypes.byref(there), 1, ctypes.c_ulong(0)
    )
    return found


def can_read(process: int) -> bool:
    """Whether the kernel lets us read the memory of that process, and so of its copies."""
    found = _read(process, 0, 1, bytearray(1))
    return found < 0 and ctypes.get_errno() == errno.EFAULT  # there is nothing at 0 in any process


class Distant:
    """The memory of another process, which stands still."""

    def __init__(self, process: int) -> None:
        self._process = process

    def read(self, address: int, length: int) -> bytearray:
        """Bytes of it. Raises CaptureFailed."""
        data = bytearray(length)
        found = _read(self._process, address, length, data)
        if found != length:
            why = os.strerror(ctypes.get_errno()) if found < 0 else "it is not all there"
            raise CaptureFailed(f"the memory of the copy of the worker cannot be read: {why}")
        return data


@dataclass(slots=True)
class Memory:
    """One buffer of a capture. With a base, all other bytes are as they were there."""

    size: int
    skew: int
    base: int
    stretches: list[Stretch] = field(default_factory=list)
    _end: int = 0

    def take(self, told: MemoryMessage, distant: Distant | None) -> None:
        """Some more of it. Raises Corrupt when it does not fit."""
        if (told.size, told.skew, told.base) != (self.size, self.skew, self.base):
            raise Corrupt(f"the worker contradicts itself about {told.name!r}")
        data, at = memoryview(told.data), 0
        if not told.address and sum(length for _, length in told.stretches) != len(data):
            raise Corrupt(f"the worker sent other bytes of {told.name!r} than it says")
        for offset, length in told.stretches:
            if offset < self._end or length <= 0 or offset + length > self.size:
                raise Corrupt(f"the worker sent stretches of {told.name!r} that do not fit")
            self._end = offset + length
            if told.address:
                if distant is None:
                    raise Corrupt("the worker points at memory that nobody may read")
                self.stretches.append((offset, length, _pointing(distant, told.address + offset)))
            else:
                self.stretches.append((offset, length, _holding(data[at : at + length])))
                at += length

    def whole(self) -> Span | bytes:
        """All bytes, where none are taken from elsewhere. Raises Corrupt when some are missing."""
        if sum(length for _, length, _ in self.stretches) != self.size:
            raise Corrupt("the worker left out some of its memory")
        if len(self.stretches) == 1:
            _, length, fetch = self.stretches[0]
            return Span(length, fetch)
        return b"".join(fetch(0, length) for _, length, fetch in self.stretches)


def _pointing(distant: Distant, address: int) -> Fetch:
    return lambda offset, length: distant.read(address + offset, length)


def _holding(data: memoryview) -> Fetch:
    return lambda offset, length: data[offset : offset + length]


class Memories(dict[str, Memory]):
    """All buffers of a capture, by the names of their parts."""

    def take(self, told: MemoryMessage, distant: Distant | None = None) -> None:
        """What a message says. Raises Corrupt."""
        if told.name not in self:
            self[told.name] = Memory(told.size, told.skew, told.base)
        self[told.name].take(told, distant)

    @property
    def size(self) -> int:
        return sum(memory.size for memory in self.values())
