"""Captures left in a file: the next one is written over it, but never while the host may read."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from holdfast.protocol.session_messages import CapturingMessage
from holdfast.session import captured as host
from holdfast.session.arriving import Left
from holdfast.session.memory import Memory
from holdfast.session.worker.captured import Captured
from holdfast.session.worker.handing import Handed, Outbox, write_gathered
from holdfast.session.worker.memory.image import Image


def capture(data: bytes, memory: bytes = b"") -> Captured:
    whole = {"buffers/a": Image(memoryview(memory), 4096, 0, 0, [(0, len(memory))])}
    return Captured({"namespace/small": data}, whole if memory else {}, "cloudpickle", [], {})


def read(handed: Handed, request: int) -> host.Captured:
    told = CapturingMessage(
        request_id=request, pause_ms=1.0, pid=0, size=handed.size, start=handed.start
    )
    return Left(handed.file, told).all()


def contents(memory: Memory) -> list[bytes]:
    found = [bytearray(length) for _, length, _ in memory.stretches]
    for data, (_, _, fill) in zip(found, memory.stretches, strict=True):
        fill(0, memoryview(data))
    return [bytes(data) for data in found]


def inode(handed: Handed) -> int:
    return os.fstat(handed.file).st_ino


def opened(number: int) -> list[int]:
    """The descriptors of this file, whatever other threads open and close meanwhile."""
    found = []
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # closed since
            if os.fstat(descriptor).st_ino == number:
                found.append(descriptor)
    return found


def test_the_next_one_is_written_over_what_the_host_has() -> None:
    outbox = Outbox()
    first = outbox.leave(capture(b"long " * 1000, b"m" * 9000), 1, 0)
    where, taken = inode(first), read(first, 1)
    assert taken.parts == {"namespace/small": b"long " * 1000}
    assert contents(taken.memory["buffers/a"]) == [b"m" * 9000]
    taken.release()
    second = outbox.leave(capture(b"short", b"n" * 100), 2, 1)
    assert inode(second) == where
    taken = read(second, 2)
    assert taken.parts == {"namespace/small": b"short"}
    assert contents(taken.memory["buffers/a"]) == [b"n" * 100]
    taken.release()


@pytest.mark.parametrize("base", [0, 1])
def test_what_the_host_may_still_read_is_left_alone(base: int) -> None:
    outbox = Outbox()
    outbox.leave(capture(b"first"), 1, 0)
    second = outbox.leave(capture(b"second"), 2, 1)
    third = outbox.leave(capture(b"third"), 3, base)  # the host has not got the second one yet
    assert inode(third) != inode(second)
    assert read(second, 2).parts == {"namespace/small": b"second"}
    assert read(third, 3).parts == {"namespace/small": b"third"}


def test_a_large_one_is_not_kept() -> None:
    outbox = Outbox()
    large = outbox.leave(capture(b"x", bytes(5 << 20)), 1, 0)
    assert opened(inode(large)) == [large.file]
    os.close(large.file)
    small = outbox.leave(capture(b"x"), 2, 1)
    assert len(opened(inode(small))) == 2  # the outbox's own, and what was handed
    os.close(small.file)


def image(content: bytes, *runs: tuple[int, int]) -> Image:
    return Image(memoryview(content), 4096, 16, 1, [*runs])


def test_what_came_ahead_is_not_written_again() -> None:
    outbox = Outbox()
    os.close(outbox.leave(capture(b"base"), 1, 0).file)
    content = os.urandom(3 << 20)
    same, other = image(content, (0, 9000), (9001, 9002)), image(content[::-1], (5, 1 << 20))
    told, file = outbox.ahead({"buffers/a": same, "buffers/b": other}, 2, 1)
    assert os.pread(file, 9001, 0) == content[:9000] + content[9001:9002]
    os.close(file)
    # The capture finds one of them as it was, another otherwise, and one more.
    memory = {"buffers/a": same, "buffers/b": image(content, (0, 4)), "buffers/c": other}
    handed = outbox.leave(Captured({"namespace/small": b"x"}, memory, "cloudpickle", [], {}), 2, 1)
    taken = read(handed, 2)
    found = {name: (each.ahead, contents(each)) for name, each in taken.memory.items()}
    assert found == {
        "buffers/a": (told.memory[0], [content[:9000], content[9001:9002]]),
        "buffers/b": (None, [content[:4]]),
        "buffers/c": (None, [content[::-1][5 : 1 << 20]]),
    }
    taken.release()


def test_what_came_ahead_of_a_capture_that_failed_is_left_alone() -> None:
    outbox = Outbox()
    told, file = outbox.ahead({"buffers/a": image(b"first" * 999, (0, 5))}, 2, 1)
    again, other = outbox.ahead({"buffers/a": image(b"other" * 999, (0, 5))}, 3, 1)
    assert (os.pread(file, 5, 0), os.pread(other, 5, 0)) == (b"first", b"other")
    assert told.memory[0].request_id, again.memory[0].request_id == (2, 3)
    os.close(file)
    os.close(other)


def test_more_pieces_than_the_kernel_takes_at_once() -> None:
    file = os.memfd_create("test", os.MFD_CLOEXEC)
    pieces = [str(number).encode() for number in range(5000)]
    assert write_gathered(file, pieces) == sum(map(len, pieces))
    assert os.pread(file, 1 << 20, 0) == b"".join(pieces)
    os.close(file)
