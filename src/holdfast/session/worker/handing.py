"""Handing a capture to the host: as messages, or left in a file that the host reads by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.protocol.frames import pieces
from holdfast.protocol.session_messages import (
    CheckpointCreatedMessage,
    Message,
    PartMessage,
    frame,
)
from holdfast.session.worker.memory.image import Way

if TYPE_CHECKING:  # with cloudpickle: 10 ms
    from holdfast.session.worker.captured import Captured

_AT_ONCE = 1024  # buffers that the kernel takes in one call
_KEPT = 4 << 20  # bytes of a file that is kept for the next capture


class Handed(NamedTuple):
    """What the host reads a capture from: a file, or a pipe from the copy with this id."""

    file: int
    pid: int = 0
    size: int = 0  # of the messages in the file; memory is behind them


class Outbox:
    """Leaves captures in a file in memory: the session does not wait until the host has read them.

    The host is done with one as soon as that is its base. Then the next one is written over it, to
    pages that are there already: to get new ones takes longer than to fill them.
    """

    def __init__(self) -> None:
        self._file = -1
        self._holds = 0  # the request whose capture is in the file

    def leave(self, captured: Captured, request_id: int, base: int) -> Handed:
        """The file is the caller's to close."""
        frames = [frame(message) for message in messages(captured, request_id, "behind")]
        stretches = [part for image in captured.memory.values() for part in image.stretches()]
        said = b"".join(frames)
        if self._holds != base:
            self._let_go()
        if self._file < 0:
            self._file = os.memfd_create("holdfast-capture", os.MFD_CLOEXEC)
        self._holds = request_id
        try:
            # The only time that memory is copied while the session waits.
            end = write_gathered(self._file, [said, *stretches])
            handed = Handed(os.dup(self._file), size=len(said))
        except BaseException:
            self._let_go()
            raise
        if end > _KEPT:
            self._let_go()
        return handed

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._holds = -1, 0


def messages(
    captured: Captured, request_id: int, way: Way = "along", started: float | None = None
) -> Iterator[Message]:
    """A capture as it travels to the host.

    `started` is when the session began to wait, if it waits until all has been sent.
    """
    for name, data in captured.parts.items():
        for piece, last in pieces(data):
            yield PartMessage(request_id=request_id, name=name, data=bytes(piece), last=last)
    for name, base in captured.kept.items():
        yield PartMessage(request_id=request_id, name=name, data=b"", base=base)
    for name, image in captured.memory.items():
        yield from image.messages(request_id, name, way)
    yield CheckpointCreatedMessage(
        request_id=request_id,
        size_bytes=captured.size,
        serialization_method=captured.serialization_method,
        pause_ms=0.0 if started is None else (time.perf_counter() - started) * 1000,
    )


def write_gathered(file: int, buffers: Sequence[bytes | memoryview]) -> int:
    """Write buffers one after the other, from a file's beginning, many at once; where they end."""
    at = 0
    for first in range(0, len(buffers), _AT_ONCE):
        some = [memoryview(buffer) for buffer in buffers[first : first + _AT_ONCE]]
        end = at + sum(buffer.nbytes for buffer in some)
        at += os.pwritev(file, some, at)
        while at < end:  # hardly ever
            at += os.pwrite(file, _behind(some, end - at), at)
    return at


def _behind(buffers: Sequence[memoryview], left: int) -> memoryview:
    """What is next of the last `left` bytes."""
    for buffer in reversed(buffers):
        if left <= buffer.nbytes:
            return buffer[buffer.nbytes - left :]
        left -= buffer.nbytes
    return memoryview(b"")
