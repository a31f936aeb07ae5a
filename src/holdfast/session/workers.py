"""Where workers come from: each a new process (`Launch`), or a fork of one that is warm.

A worker that is handed out has said that it is ready and has run nothing of the user's, except
the warm-up of its template.
"""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import holdfast
from holdfast.model.errors import HoldfastError, from_os_error
from holdfast.protocol.session_messages import ReadyMessage, Stream
from holdfast.session.output import Early
from holdfast.session.process import WorkerProcess
from holdfast.session.spawner import spawn

START_TIMEOUT = 60.0

# What lies in the session's folder, or beside a script, under the name of a standard module is the
# user's, and not what the worker is made of.
_BOOT = (
    "import sys\n"
    "root = sys.argv.pop()\n"
    "if root not in sys.path: sys.path.append(root)\n"
    "path, library = sys.path[:], sys._stdlib_dir\n"
    "sys.path.sort(key=lambda each: each != library and not each.endswith('/lib-dynload'))\n"
    "from holdfast.session.worker.boot import boot\n"
    "boot({module!r}, sys.argv[1:], path)"
)


Greet = Callable[[WorkerProcess], None]


class Workers(Protocol):
    """Gives out workers, one for each call."""

    async def start(self, greet: Greet | None = None) -> WorkerProcess:
        """A worker that waits for its first request. Raises HoldfastError.

        `greet` is given the worker as soon as something can be sent to it.
        """


class Spawned:
    """A process that the host started itself."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.pidfd = _watch(process.pid)

    def when_ended(self, tell: Callable[[int | None], None]) -> None:
        tell(self._process.wait())


def _watch(pid: int) -> int:
    """A descriptor that can be read once a child has ended: its pidfd or, on a kernel without
    (gVisor's), the end of a pipe."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    ended, ending = os.pipe()

    def wait() -> None:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # whoever reads it collects the child
        finally:
            os.close(ending)

    threading.Thread(target=wait, name="holdfast-worker-end", daemon=True).start()
    return ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a process for workers is started."""

    python: str
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def environ(self) -> dict[str, str]:
        """The worker's environment: without what is the host's business, keys and tokens."""
        ours = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        return {**ours, **self.env}

    def spawn(
        self, module: str, arguments: Sequence[int], *, stdout: int, stderr: int
    ) -> subprocess.Popen[bytes]:
        """Run a module of `holdfast.session.worker`; its arguments but the last are its files.

        The last one is the host's process id. Raises HoldfastError.
        """
        root = str(Path(holdfast.__file__).parent.parent)
        boot = [self.python, "-u", "-X", "utf8", "-c", _BOOT.format(module=module)]
        try:
            return spawn(
                [*boot, *map(str, (*arguments, os.getpid())), root],
                stdout=stdout,
                stderr=stderr,
                pass_fds=arguments,
                env=self.environ(),
                cwd=self.cwd,
            )
        except (OSError, ValueError) as error:
            raise HoldfastError(
                f"no worker can be started: {error}",
                hint="look at python=, cwd= and env= of the session",
            ) from None

    async def start(self, greet: Greet | None = None) -> WorkerProcess:
        worker = made()
        ends = worker.ends
        try:
            process = self.spawn(
                "main", (ends.control, ends.page), stdout=ends.stdout, stderr=ends.stderr
            )
        except BaseException:
            worker.abandon()
            raise
        try:
            handle = Spawned(process)
        except OSError as error:
            process.kill()
            process.wait()
            worker.abandon()
            raise from_os_error(error, "starting a worker") from error
        worker.attach(handle)
        if greet is not None:
            greet(worker)
        hint = f"see whether `{self.python}` can import holdfast and msgspec"
        return await ready(worker, hint)


def made() -> WorkerProcess:
    """All that connects a worker with its host, before there is a process. Raises HoldfastError."""
    try:
        return WorkerProcess()
    except OSError as error:
        raise from_os_error(error, "starting a worker") from error


async def ready(worker: WorkerProcess, hint: str) -> WorkerProcess:
    """The worker, when it has said so; one that does not is ended. Raises HoldfastError."""
    said = Early()
    worker.deliver = said.add
    try:
        message = await asyncio.wait_for(worker.receive(), START_TIMEOUT)
    except TimeoutError:
        await end(worker)
        raise HoldfastError(f"the worker did not start within {START_TIMEOUT:g} s") from None
    except BaseException:
        await end(worker)
        raise
    if not isinstance(message, ReadyMessage):
        await end(worker)
        last = last_line(said.take())
        raise HoldfastError(f"the worker did not start: {last or worker.how_it_ended}", hint=hint)
    return worker


async def end(worker: WorkerProcess) -> None:
    """Of one that nobody will use: nothing of it is left."""
    worker.kill()
    await worker.ended()


def last_line(said: Sequence[tuple[Stream, str]]) -> str:
    """The last thing that a process said before it ended: most often why."""
    return "".join(text for _, text in said).strip().split("\n")[-1]
