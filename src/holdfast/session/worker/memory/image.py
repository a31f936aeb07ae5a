"""A capture's memory on its way to the host: only the bytes that it does not have yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from holdfast.protocol.frames import PIECE
from holdfast.protocol.session_messages import MemoryMessage
from holdfast.session.worker.memory.pagemap import Runs

RUNS = 4096  # in one message

# How its bytes come to the host: in the messages, behind all messages in the same file, or read by
# the host where they lie. Some come ahead of the messages.
Way = Literal["along", "behind", "lies"]


class Image(NamedTuple):
    """A buffer, and which of its bytes the host needs."""

    view: memoryview
    address: int
    skew: int
    base: int  # the capture that has the rest; 0: all bytes are needed
    runs: Runs  # from an offset up to another
    looks: int = 0  # what is found by another one may be in bytes that were copied before it

    @property
    def needed(self) -> int:
        return sum(end - start for start, end in self.runs)

    def is_like(self, other: Image) -> bool:
        """Whether the same bytes of the same memory are needed."""
        return self[1:] == other[1:] and self.view.nbytes == other.view.nbytes

    def stretches(self) -> Iterator[memoryview]:
        """The bytes that the host needs, in order."""
        return (self.view[start:end] for start, end in self.runs)

    def ahead(self, request_id: int, name: str, at: int) -> MemoryMessage:
        """Where its bytes stand, which came ahead of all messages."""
        return MemoryMessage(
            request_id=request_id, name=name, size=self.view.nbytes, skew=self.skew, base=self.base,
            stretches=_told(self.runs), ahead=True, address=at,
        )  # fmt: skip

    def messages(self, request_id: int, name: str, way: Way) -> Iterator[MemoryMessage]:
        """The bytes, in pieces; or only where they are."""
        if not self.runs:  # as most are
            yield MemoryMessage(
                request_id=request_id, name=name, size=self.view.nbytes, skew=self.skew,
                base=self.base,
            )  # fmt: skip
            return
        about = {
            "request_id": request_id, "name": name, "size": self.view.nbytes, "skew": self.skew,
            "base": self.base,
        }  # fmt: skip
        if way != "along":
            where = {"behind": True} if way == "behind" else {"address": self.address}
            for first in range(0, len(self.runs), RUNS):
                some = _told(self.runs[first : first + RUNS])
                yield MemoryMessage(**about, **where, stretches=some)  # type: ignore[arg-type]
            return
        for stretches in _pieces(self.runs):
            data = b"".join(self.view[start : start + length] for start, length in stretches)
            yield MemoryMessage(**about, stretches=stretches, data=data)  # type: ignore[arg-type]


def _told(runs: Runs) -> tuple[tuple[int, int], ...]:
    return tuple((start, end - start) for start, end in runs)


def _pieces(runs: Runs) -> Iterator[tuple[tuple[int, int], ...]]:
    """Stretches for one message after the other."""
    some: list[tuple[int, int]] = []
    room = PIECE
    for start, end in runs:
        at = start
        while at < end:
            length = min(end - at, room)
            some.append((at, length))
            at += length
            room -= length
            if not room or len(some) == RUNS:
                yield tuple(some)
                some, room = [], PIECE
    if some:
        yield tuple(some)
