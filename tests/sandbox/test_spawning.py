"""Commands begun out of a thread that gave something up."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL

import pytest

from holdfast.sandbox.engines import barrier
from holdfast.sandbox.spawning import Begun, Spawner
from holdfast.testing.waiting import eventually

BARRIERS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
call = {"x86_64": 324, "aarch64": 283}[os.uname().machine]
print(libc.syscall(call, 0, 0, 0) > 0, libc.syscall(call, 16, 0, 0), ctypes.get_errno())
"""


async def begin(spawner: Spawner, argv: Sequence[str], log: Path) -> Begun:
    with open(log, "ab") as said:
        return await spawner(argv, DEVNULL, said.fileno(), said, os.environ)


def nothing() -> None:
    """To be given up."""


async def test_what_a_command_ends_with(tmp_path: Path) -> None:
    spawner, log = Spawner(nothing), tmp_path / "log"
    ended = await begin(spawner, ["/bin/sh", "-c", "exit 7"], log)
    assert [await ended.wait(), await ended.wait(), ended.returncode] == [7, 7, 7]
    killed = await begin(spawner, ["/bin/sleep", "60"], log)
    waiting = asyncio.create_task(killed.wait())
    await asyncio.sleep(0)
    waiting.cancel()  # somebody who waits no longer changes nothing
    os.kill(killed.pid, signal.SIGKILL)
    assert await killed.wait() == -signal.SIGKILL
    with pytest.raises(FileNotFoundError):
        await begin(spawner, ["/no/such/program"], log)


async def test_it_is_collected_when_nobody_waits(tmp_path: Path) -> None:
    pid = (await begin(Spawner(nothing), ["/bin/true"], tmp_path / "log")).pid
    async with asyncio.timeout(20):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


async def test_one_that_was_not_begun_yet_never_is(tmp_path: Path) -> None:
    free, log = threading.Event(), tmp_path / "log"

    def hold() -> None:
        free.wait(20)

    spawner = Spawner(hold)
    starting = asyncio.create_task(begin(spawner, ["/usr/bin/touch", f"{tmp_path}/x"], log))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    free.set()
    assert await (await begin(spawner, ["/bin/true"], log)).wait() == 0
    assert not (tmp_path / "x").exists()


async def test_one_that_was_just_begun_does_not_stay(tmp_path: Path) -> None:
    told = tmp_path / "told"
    argv = ["/bin/sh", "-c", f"echo $$ > {told}.new; mv {told}.new {told}; exec sleep 60"]
    starting = asyncio.create_task(begin(Spawner(nothing), argv, tmp_path / "log"))
    await asyncio.sleep(0)
    eventually(told.exists, "it was begun")  # blocking: the loop does not hear of it
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not Path("/proc", told.read_text().strip()).exists()


async def test_no_registration_for_barriers_of_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    argv = [sys.executable, "-c", BARRIERS]
    assert await (await begin(Spawner(barrier.forgo), argv, log)).wait() == 0
    assert log.read_text() == f"True -1 {errno.EINVAL}\n"
    assert await (await begin(Spawner(nothing), argv, tmp_path / "other")).wait() == 0
    assert (tmp_path / "other").read_text() == "True 0 0\n"  # only that thread's
