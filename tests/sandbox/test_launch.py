"""Commands that are started for sandboxes, and how they end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.sandbox import launch
from holdfast.sandbox.spawning import Begun, as_usual
from holdfast.testing.waiting import until


async def sleeping(log: Path) -> asyncio.subprocess.Process:
    pipes = launch.Pipes()
    process = await launch.start(["/bin/sleep", "60"], pipes, log, {})
    pipes.close_inner()
    pipes.close()
    return process


async def test_whoever_died_just_before_is_asyncios_to_collect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "asyncio"):
        for _ in range(20):
            process = await sleeping(tmp_path / "log")
            os.kill(process.pid, signal.SIGKILL)
            launch.kill(process)
            assert await process.wait() == -signal.SIGKILL
            launch.kill(process)  # nobody is there any more
    assert not caplog.records


async def test_what_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    log, told = tmp_path / "log", tmp_path / "child"
    script = f"sleep 60 & echo $! > {told}.new; mv {told}.new {told}; wait"

    async def spawn(
        argv: Sequence[str], stdin: int, stdout: int, stderr: IO[bytes], environ: Mapping[str, str]
    ) -> Begun:
        begun = await as_usual(argv, stdin, stdout, stderr, environ)
        await until(told.exists, "it has begun another one")  # its time counts from then
        return begun

    with pytest.raises(HoldfastError, match=r"did not end within 0\.3 s"):
        await launch.command(["/bin/sh", "-c", script], log, {}, 0.3, spawn)
    child = int(told.read_text())
    await until(lambda: _state(child) == "Z", "that one has ended, too", 10)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # before it is read, or meanwhile
        return "Z"
