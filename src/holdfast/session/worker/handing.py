"""Handing a capture to the host: as messages, or left in a file that the host reads by itself."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from holdfast.protocol.frames import pieces
from holdfast.protocol.session_messages import (
    AheadMessage,
    CheckpointCreatedMessage,
    MemoryMessage,
    Message,
    PartMessage,
    frame,
)
from holdfast.session.worker.memory.image import Image, Way

if TYPE_CHECKING:  # with cloudpickle: 10 ms
    from holdfast.session.worker.captured import Captured

_AT_ONCE = 1024  # buffers that the kernel takes in one call
_KEPT = 4 << 20  # bytes of a file that is kept for the next capture
_STEP = 1 << 20  # bytes that are mapped at a time


class Handed(NamedTuple):
    """What the host reads a capture from: a file, or a pipe from the copy with this id."""

    file: int
    pid: int = 0
    size: int = 0  # of the messages in the file; memory is behind them
    start: int = 0  # of them; memory that came ahead is before that


class Outbox:
    """Leaves captures in a file in memory: the session does not wait until the host has read them.

    The host is done with one as soon as that is its base. Then the next one is written over it, to
    pages that are there already: to get new ones takes longer than to fill them.
    """

    def __init__(self) -> None:
        self._file = -1
        self._holds = 0  # the request whose capture is in the file
        self._end = 0  # of what is there of it so far
        self._sent: dict[str, tuple[Image, MemoryMessage]] = {}  # what that is, by part
        self._mapped: mmap.mmap | None = None  # its beginning, for what comes ahead

    def ahead(
        self, images: Mapping[str, Image], request_id: int, base: int
    ) -> tuple[AheadMessage, int]:
        """Some memory of a capture that is about to be made, copied now; and a file, which is the
        caller's to close."""
        self._begin(request_id, base)
        with self._writing():
            room = self._room(sum(image.needed for image in images.values()))
            for name, image in images.items():
                self._sent[name] = image, image.ahead(request_id, name, self._end)
                for stretch in image.stretches():
                    room[self._end : self._end + stretch.nbytes] = stretch
                    self._end += stretch.nbytes
            told = tuple(message for _, message in self._sent.values())
            return AheadMessage(request_id=request_id, memory=told), os.dup(self._file)

    def leave(self, captured: Captured, request_id: int, base: int) -> Handed:
        """The file is the caller's to close."""
        if self._holds != request_id:
            self._begin(request_id, base)
        # What came ahead counts where the capture has found the same.
        sent = {
            name: told
            for name, (image, told) in self._sent.items()
            if name in captured.memory and captured.memory[name].is_like(image)
        }
        said = b"".join(map(frame, messages(captured, request_id, "behind", sent=sent)))
        rest = [image for name, image in captured.memory.items() if name not in sent]
        stretches = [part for image in rest for part in image.stretches()]
        with self._writing():
            # The only time that memory is copied while the session waits.
            end = write_gathered(self._file, [said, *stretches], self._end)
            handed = Handed(os.dup(self._file), size=len(said), start=self._end)
        if end > _KEPT:
            self._let_go()
        self._sent = {}
        return handed

    def _begin(self, request_id: int, base: int) -> None:
        if self._holds != base:
            self._let_go()
        if self._file < 0:
            self._file = os.memfd_create("holdfast-capture", os.MFD_CLOEXEC)
        self._holds, self._end, self._sent = request_id, 0, {}

    def _room(self, size: int) -> mmap.mmap:
        """The beginning of the file, as memory: written to as such, pages that are there already
        take a third of the time that the kernel takes for them."""
        if self._mapped is None or len(self._mapped) < size:
            size = -(-size // _STEP) * _STEP
            if os.fstat(self._file).st_size < size:
                os.ftruncate(self._file, size)
            self._mapped = mmap.mmap(self._file, size)
        return self._mapped

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What fails in this block leaves a file behind that nobody knows."""
        try:
            yield
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._holds, self._end, self._sent = -1, 0, 0, {}
        self._mapped = None


def messages(
    captured: Captured,
    request_id: int,
    way: Way = "along",
    started: float | None = None,
    sent: Mapping[str, MemoryMessage] | None = None,
) -> Iterator[Message]:
    """A capture as it travels to the host.

    `started` is when the session began to wait, if it waits until all has been sent; of what was
    `sent` ahead it is only said where it is.
    """
    for name, data in captured.parts.items():
        for piece, last in pieces(data):
            yield PartMessage(request_id=request_id, name=name, data=bytes(piece), last=last)
    for name, base in captured.kept.items():
        yield PartMessage(request_id=request_id, name=name, data=b"", base=base)
    for name, image in captured.memory.items():
        told = sent.get(name) if sent else None
        yield from image.messages(request_id, name, way) if told is None else (told,)
    yield CheckpointCreatedMessage(
        request_id=request_id,
        size_bytes=captured.size,
        serialization_method=captured.serialization_method,
        pause_ms=0.0 if started is None else (time.perf_counter() - started) * 1000,
    )


def write_gathered(file: int, buffers: Sequence[bytes | memoryview], at: int = 0) -> int:
    """Write buffers one after the other, from some place of a file on, many at once; where they
    end."""
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
