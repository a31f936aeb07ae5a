"""Commands that are begun out of a thread of their own: they inherit what it gave up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Protocol


class Begun(Protocol):
    """A command that was begun."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...


# From a command, its standard streams and its environment. Raises OSError.
Spawn = Callable[[Sequence[str], int, int, IO[bytes], Mapping[str, str]], Awaitable[Begun]]


async def as_usual(
    argv: Sequence[str], stdin: int, stdout: int, stderr: IO[bytes], environ: Mapping[str, str]
) -> Begun:
    """Out of the thread of the loop."""
    return await asyncio.create_subprocess_exec(
        *argv,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=dict(environ),
        start_new_session=True,
    )


class Command:
    """One of ours; it is collected as soon as it has ended, whether somebody waits or not."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._fd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._fd, self._collect)

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def _collect(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._ended.set_result(self._process.wait())


class Spawner:
    """Begins commands. `give_up` is called once, in the thread that begins them all; a filter of
    system calls, for instance, is a thread's and not a process's."""

    def __init__(self, give_up: Callable[[], None]) -> None:
        self._thread = ThreadPoolExecutor(1, "holdfast-spawner", give_up)

    async def __call__(
        self,
        argv: Sequence[str],
        stdin: int,
        stdout: int,
        stderr: IO[bytes],
        environ: Mapping[str, str],
    ) -> Begun:
        def begin() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=environ,
                start_new_session=True,
            )

        spawning = self._thread.submit(begin)
        try:
            return Command(await asyncio.wrap_future(spawning))
        except asyncio.CancelledError:
            if not spawning.cancelled():
                # Too late for that. Whoever gave it its streams closes them now: not before it
                # has them.
                with contextlib.suppress(OSError):
                    process = spawning.result()
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            raise
