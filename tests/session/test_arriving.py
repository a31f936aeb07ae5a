"""Captures beside the session as the host sees them: their order, their end, and nobody's time."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from holdfast.model.errors import CaptureFailed
from holdfast.protocol.session_messages import (
    CapturingMessage,
    CheckpointCreatedMessage,
    ErrorMessage,
    MemoryMessage,
    frame,
)
from holdfast.session import Session
from holdfast.session.arriving import Arriving, Left, _child
from holdfast.testing.waiting import until

# A process so large that it is not captured in place, although its variables are small.
LARGE = (
    "import ctypes, time\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\n"
    "at = libc.malloc(180 << 20)\nlibc.memset(ctypes.c_void_p(at), 1, 180 << 20)\ndel libc\n"
    "x = [1]\n"
)
SLOW = LARGE + (
    "class Slow:\n    def __reduce__(self):\n        time.sleep(PAUSE)\n        return Slow, ()\n"
    "slow, PAUSE = Slow(), 1.0\n"
)
ENDLESS = LARGE + (
    "class Endless:\n    def __reduce__(self):\n        while True: pass\nendless = Endless()\n"
)


async def value(session: Session, code: str) -> object:
    result = await session.execute(code)
    assert result.error is None, result.error.traceback
    return result.value


def copies(session: Session) -> list[int]:
    text = Path(f"/proc/{session.pid}/task/{session.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


async def copy_of(session: Session) -> int:
    """The copy that makes the capture, as the host was told: it may have come to its end since."""
    found = session._driver
    await until(lambda: isinstance(found.arriving, Arriving), "a copy makes the capture")
    assert isinstance(found.arriving, Arriving)
    return found.arriving._begun.pid


async def test_the_first_capture_of_a_large_process(session: Session) -> None:
    await session.execute(SLOW)
    capture = asyncio.create_task(session.checkpoint())
    await copy_of(session)
    assert await value(session, "x.append(2)\nx") == [1, 2]
    cp = await capture
    assert cp.pause_ms < 900  # the copy, not the capture; some ms on a quiet machine
    await session.restore(cp)
    assert await value(session, "x") == [1]


async def test_captures_are_committed_in_order(make) -> None:
    session = await make("steps", auto_checkpoint="cell")
    await session.execute(SLOW)
    await session.execute("PAUSE = 0\nx.append(2)")
    await session.flush()
    newest, oldest = await session.list()
    assert (newest.reason, oldest.reason) == ("cell 2", "cell 1")
    assert newest.parents == (oldest.id,)
    for cp, rows in ((oldest, [1]), (newest, [1, 2])):
        await session.restore(cp)
        assert await value(session, "x") == rows


async def test_a_capture_beside_is_interrupted_or_cancelled(session: Session, store) -> None:
    await session.execute(ENDLESS)
    capture = asyncio.create_task(session.checkpoint())
    copy = await copy_of(session)
    while session._driver.arriving is None:
        await asyncio.sleep(0.01)
    assert await session.interrupt() is True
    with pytest.raises(CaptureFailed, match="KeyboardInterrupt"):
        await capture
    assert await session.interrupt() is False
    await ended(copy)
    await value(session, "1")
    capture = asyncio.create_task(session.checkpoint())
    while not session._driver.arriving.open:
        await asyncio.sleep(0.01)
    capture.cancel()
    with pytest.raises(asyncio.CancelledError):
        await capture
    assert await value(session, "x") == [1]  # and raises nothing
    assert store.head("session/work") is None
    started = time.monotonic()
    await session.shutdown()
    assert time.monotonic() - started < 20


async def ended(pid: int) -> None:
    def gone() -> bool:
        try:
            return " Z " in Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    await until(gone, "the copy has ended")


async def test_a_late_copy_is_ended(session: Session) -> None:
    await session.execute(ENDLESS)
    capture = asyncio.create_task(session.checkpoint(timeout=1.0))
    copy = await copy_of(session)
    with pytest.raises(CaptureFailed, match="longer than 1 s"):
        await capture
    await ended(copy)
    assert await value(session, "del endless\nx") == [1]


async def test_a_capture_survives_the_worker(session: Session) -> None:
    await session.execute(SLOW)
    capture = asyncio.create_task(session.checkpoint())
    while session._driver.arriving is None:
        await asyncio.sleep(0.01)
    assert (await session.execute("import os\nos._exit(1)")).error.type == "WorkerDied"
    cp = await capture
    result = await session.execute("x")
    assert (result.value, result.resumed_from) == ([1], cp.id)


async def test_a_fork_in_the_copy_says_nothing(session: Session) -> None:
    await session.execute(
        LARGE + "import os\nclass Loud:\n    def __reduce__(self):\n"
        "        print('heard')\n        os.write(2, b'heard')\n        os.fork()\n"
        "        return Loud, ()\nloud = Loud()"
    )
    cp = await session.checkpoint()
    result = await session.execute("x")
    assert (result.value, result.stdout, result.stderr) == ([1], "", "")
    await session.restore(cp)
    assert await value(session, "x") == [1]


async def test_a_call_that_is_cancelled_while_the_copy_is_made(session: Session) -> None:
    await session.execute(LARGE + "import os\nbig = os.urandom(4 << 20)")
    before = len(os.listdir("/proc/self/fd"))
    for wait in (0, 0.005, 0.02, 0.05, 0.1):
        capture = asyncio.create_task(session.checkpoint())
        await asyncio.sleep(wait)
        capture.cancel()
        with pytest.raises(asyncio.CancelledError):
            await capture
    for copy in copies(session):
        await ended(copy)
    assert await value(session, "x") == [1]
    await session.flush()
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # a thread's, at most


async def test_nothing_stays_open(session: Session) -> None:
    await session.execute(LARGE)
    await session.checkpoint()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await session.checkpoint()
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_worker_that_names_a_stranger_kills_nobody(session: Session) -> None:
    assert session.pid is not None
    assert _child(os.getpid(), session.pid) == -1
    assert _child(-5, session.pid) == -1
    mine = _child(session.pid, os.getpid())
    assert mine >= 0
    os.close(mine)


async def test_a_quick_capture_is_complete_when_the_session_goes_on(session: Session) -> None:
    """It waits in a file: the worker may die, and nobody can interrupt it any more."""
    await session.execute("x = list(range(100))")
    await session.checkpoint()
    await session.execute("x.append(5)")
    for _ in range(100):
        async with session._driver.lock:
            done = await session._keeper.freeze("last")
        if isinstance(session._driver.arriving, Left):
            break
        await done  # this machine was slow, so a copy made it
    assert not await session.interrupt()
    os.kill(session.pid or 0, 9)
    made = await session._keeper.wait_for(done)
    await session.restore(made)
    assert await value(session, "len(x)") == 101


FAILED = frame(ErrorMessage(error_type="E", message="m"))


@pytest.mark.parametrize("content", [b"", b"\0\0\0\5", b"\0\0\0\1x", b"\xff" * 9, FAILED])
def test_a_file_that_holds_no_capture(content: bytes) -> None:
    file = os.memfd_create("capture")
    os.write(file, content)
    with pytest.raises(CaptureFailed):
        Left(file, CapturingMessage(request_id=1, size=1 << 40)).all()
    with pytest.raises(OSError, match="Bad file"):  # it was closed
        os.fstat(file)


def test_a_pipe_that_is_said_to_be_a_file() -> None:
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(CaptureFailed, match="cannot be read"):
        Left(read, CapturingMessage(request_id=1, size=10)).all()


def test_memory_that_is_not_behind_a_capture() -> None:
    told = MemoryMessage(request_id=1, name="buffers/b1", size=9, stretches=((0, 9),), behind=True)
    content = frame(told) + frame(CheckpointCreatedMessage(request_id=1))
    file = os.memfd_create("capture")
    os.write(file, content + b"short")
    found = Left(file, CapturingMessage(request_id=1, size=len(content))).all()
    _, _, fill = found.memory["buffers/b1"].stretches[0]
    data = bytearray(9)
    fill(0, memoryview(data)[:5])
    assert data == b"short" + bytes(4)
    with pytest.raises(CaptureFailed, match="ended"):
        fill(0, memoryview(data))
    found.release()
