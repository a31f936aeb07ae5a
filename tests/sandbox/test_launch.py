"""Commands that are started for sandboxes, and how they end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.sandbox import launch


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
    log = tmp_path / "log"
    with pytest.raises(HoldfastError, match=r"did not end within 0\.3 s"):
        await launch.command(
            ["/bin/sh", "-c", f"sleep 60 & echo $! > {tmp_path}/child; wait"], log, {}, 0.3
        )
    child = int((tmp_path / "child").read_text())
    async with asyncio.timeout(10):
        while Path(f"/proc/{child}").exists() and _state(child) != "Z":
            await asyncio.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"
