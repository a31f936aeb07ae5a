"""Launching an engine's command with the two pipes of an agent, and waiting for it in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL
from typing import Protocol

from holdfast.model.errors import HoldfastError, from_os_error
from holdfast.model.fault_points import fault_point
from holdfast.model.tracing import span
from holdfast.sandbox.contract import Build
from holdfast.sandbox.spawning import Begun, Spawn, as_usual

steps = logging.getLogger("holdfast.engine")


class Launcher(Protocol):
    """What puts an agent into namespaces of its own."""

    def words(self, build: Build) -> list[str]: ...

    def environ(self, build: Build) -> Mapping[str, str]: ...

    def places(self, build: Build) -> Mapping[str, str]:
        """Where the agent finds what a sandbox calls otherwise; with walls, nothing."""
        ...

    def own_users(self, build: Build) -> bool:
        """Whether the kernel tells the sandbox's users from the host's of the same number."""
        ...

    def end(self, pid: int) -> None:
        """End what the process that was launched would leave behind. Blocking."""
        ...


class Walls:
    """A launcher whose namespaces end with their first process, and have names of their own."""

    def places(self, build: Build) -> Mapping[str, str]:
        return {}

    def end(self, pid: int) -> None:
        """Nothing is left."""


class Pipes:
    """Two pipes: the ends of ours, and the ends that go into the sandbox."""

    def __init__(self) -> None:
        self.inner_read, self.write = os.pipe()
        self.read, self.inner_write = os.pipe()
        # What the kernel calls them: the agent's input and its output.
        self.inodes = (os.fstat(self.inner_read).st_ino, os.fstat(self.inner_write).st_ino)

    @property
    def ours(self) -> tuple[int, int]:
        return self.read, self.write

    @property
    def held(self) -> bool:
        """Whether somebody has the ends of the sandbox."""
        hears = select.poll()
        hears.register(self.read, 0)  # that all have gone is always told
        return not hears.poll(0)

    def close_inner(self) -> None:
        """After the launch: or the end of the sandbox would never be heard."""
        os.close(self.inner_read)
        os.close(self.inner_write)

    def close(self) -> None:
        os.close(self.read)
        os.close(self.write)


async def start(
    argv: Sequence[str],
    pipes: Pipes,
    log: Path | None,
    environ: Mapping[str, str],
    spawn: Spawn = as_usual,
) -> Begun:
    """Begin a command with the inner ends as its standard streams, and errors in a log, if any:
    an engine that cannot freeze a file of the host gets none."""
    fault_point(f"launch.start {Path(argv[0]).name}")
    try:
        with open(log or os.devnull, "ab", opener=_private) as errors:
            return await spawn(argv, pipes.inner_read, pipes.inner_write, errors, environ)
    except OSError as error:
        raise from_os_error(error, f"starting {argv[0]}") from error


async def finished(process: Begun, seconds: float) -> int | None:
    """The exit code, or None after killing what did not end in time, with all it started. Cancelled
    it raises that, with nothing left that runs."""
    try:
        async with asyncio.timeout(seconds):
            return await process.wait()
    except BaseException as error:
        kill(process)
        await process.wait()
        if isinstance(error, TimeoutError):
            return None
        raise


def kill(process: Begun) -> None:
    """End what leads a session of its own, with all of it. Its own `kill` asks first whether it
    lives, and so collects it before asyncio does, which is then left without an exit code."""
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.killpg(process.pid, signal.SIGKILL)


async def command(
    argv: Sequence[str],
    log: Path,
    environ: Mapping[str, str],
    seconds: float,
    spawn: Spawn = as_usual,
) -> None:
    """Run a command to its end. Raises HoldfastError with its last words."""
    fault_point(f"launch.command {Path(argv[0]).name}")
    try:
        with open(log, "ab", opener=_private) as errors:
            process = await spawn(argv, DEVNULL, DEVNULL, errors, environ)
    except OSError as error:
        raise from_os_error(error, f"starting {argv[0]}") from error
    program = Path(argv[0]).name
    began = time.perf_counter()
    with span("engine.command", command=program):
        code = await finished(process, seconds)
    took = round((time.perf_counter() - began) * 1000, 1)
    steps.info("%s ended with %s", program, code, extra={"ms": took})
    if code != 0:
        raise HoldfastError(failure(code, seconds, log))


def failure(code: int | None, seconds: float, log: Path) -> str:
    """Why a command failed, in one line: what it said last, if anything."""
    if code is None:
        return f"did not end within {seconds:g} s and was killed"
    try:
        lines = log.read_bytes()[-4096:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return f"ended with code {code}" + (f": {lines[-1][:300]}" if lines else "")


def _private(path: str, flags: int) -> int:
    """A log that a sandbox's user could not read even where it is the agent's standard error."""
    return os.open(path, flags, 0o600)
