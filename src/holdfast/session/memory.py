"""Memory that a capture hands over: stretches that came along, or that lie elsewhere."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial

from holdfast.model.errors import CaptureFailed, Corrupt
from holdfast.protocol.session_messages import MemoryMessage
from holdfast.store.parts.patching import Fill, Stretch
from holdfast.store.parts.sources import Span


def can_read(process: int) -> bool:
    """Whether the kernel lets us read the memory of that process, and so of its copies."""
    try:
        os.close(_open(process))
    except OSError:
        return False
    return True


def _open(process: int) -> int:
    # Not `process_vm_readv`: it pins pages, and a pinned page is copied when it is shared with the
    # process that this one is a fork of. The copy of a worker would come to need as much memory.
    return os.open(f"/proc/{process}/mem", os.O_RDONLY | os.O_CLOEXEC)


class Distant:
    """Bytes that are read where they lie, in a file that is ours to close.

    It is the memory of a copy of the worker, which stands still; or the file that a capture was
    left in, where all stretches stand one after the other, from some place on.
    """

    def __init__(self, fd: int, at: int | None = None) -> None:
        self._fd = fd
        self._at = at

    @classmethod
    def memory_of(cls, process: int) -> Distant:
        """While it is sure whose memory it is. Raises OSError."""
        return cls(_open(process))

    def close(self) -> None:
        """May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def place(self, told: MemoryMessage, offset: int, length: int, before: int) -> int:
        """Where a stretch lies; `before` it are so many bytes of the same message. Raises
        Corrupt."""
        if told.ahead and self._at is not None:
            return told.address + before
        if told.ahead or told.behind != (self._at is not None):
            raise Corrupt("the worker points at memory that is not there")
        if self._at is None:
            return told.address + offset
        self._at += length
        return self._at - length

    def fill(self, at: int, view: memoryview) -> None:
        """With bytes of it. Raises CaptureFailed."""
        try:
            while view:
                done = os.preadv(self._fd, [view], at)
                if not done:
                    raise CaptureFailed("the memory of a capture ended before it was read")
                view, at = view[done:], at + done
        except (OSError, OverflowError) as error:
            raise CaptureFailed(f"the memory of a capture cannot be read: {error}") from None


@dataclass(slots=True)
class Memory:
    """One buffer of a capture. With a base, all other bytes are as they were there."""

    size: int
    skew: int
    base: int
    stretches: list[Stretch] = field(default_factory=list)
    ahead: MemoryMessage | None = None  # what was said of it, if it came ahead of its capture
    _end: int = 0

    def take(self, told: MemoryMessage, distant: Distant | None) -> None:
        """Some more of it. Raises Corrupt when it does not fit."""
        if (told.size, told.skew, told.base) != (self.size, self.skew, self.base):
            raise Corrupt(f"the worker contradicts itself about {told.name!r}")
        if not (told.stretches or told.data or told.ahead):  # it is as it was
            self.ahead = None
            return
        data, at = memoryview(told.data), 0
        elsewhere = told.address or told.behind or told.ahead
        self.ahead = told if told.ahead and not self.stretches else None
        if not elsewhere and sum(length for _, length in told.stretches) != len(data):
            raise Corrupt(f"the worker sent other bytes of {told.name!r} than it says")
        for offset, length in told.stretches:
            if offset < self._end or length <= 0 or offset + length > self.size:
                raise Corrupt(f"the worker sent stretches of {told.name!r} that do not fit")
            self._end = offset + length
            if elsewhere:
                if distant is None:
                    raise Corrupt("the worker points at memory that nobody may read")
                where = distant.place(told, offset, length, at)
                self.stretches.append((offset, length, _pointing(distant, where)))
            else:
                self.stretches.append((offset, length, _holding(data[at : at + length])))
            at += length

    def whole(self) -> Span | bytes:
        """All bytes, where none are taken from elsewhere. Raises Corrupt when some are missing."""
        if sum(length for _, length, _ in self.stretches) != self.size:
            raise Corrupt("the worker left out some of its memory")
        if len(self.stretches) == 1:
            _, length, fill = self.stretches[0]
            return Span(length, partial(_filled, fill))
        return b"".join(_filled(fill, 0, length) for _, length, fill in self.stretches)


def _pointing(distant: Distant, at: int) -> Fill:
    return lambda offset, view: distant.fill(at + offset, view)


def _holding(data: memoryview) -> Fill:
    def fill(offset: int, view: memoryview) -> None:
        view[:] = data[offset : offset + len(view)]

    return fill


def _filled(fill: Fill, offset: int, length: int) -> bytearray:
    """A piece of a stretch, in memory of its own. Raises CaptureFailed."""
    try:
        data = bytearray(length)
    except (OverflowError, MemoryError) as error:
        raise CaptureFailed(f"the memory of a capture cannot be read: {error}") from None
    fill(offset, memoryview(data))
    return data


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
