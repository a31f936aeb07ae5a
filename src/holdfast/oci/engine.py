"""The real runc: always named by its path, and what may take long always under a deadline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from holdfast.model.errors import HoldfastError, NotFound, Unsupported
from holdfast.model.readiness import readable
from holdfast.model.tracing import span
from holdfast.oci.state import Process
from holdfast.runtime import engines
from holdfast.runtime.command import Outcome, run

STEP_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_ABSENT = "container does not exist"  # runc's words; its exit code is 1 for every failure


@dataclass(frozen=True, slots=True)
class Limits:
    """What a long command may take: time, and bytes in its logs."""

    seconds: float
    logs: Path  # a folder; every `*.log` in it counts
    log_bytes: int


class EngineFailed(HoldfastError):
    """runc or CRIU ended with an error, or was stopped at a limit."""


class Runc:
    """runc with the global options of the command that is being handled."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str]) -> None:
        found = engines.find("runc", environ)
        if found is None:
            raise NotFound(
                "there is no runc", hint="install it, or name it with HOLDFAST_RUNC=/path/to/runc"
            )
        self.program = str(found.program)
        self.globals = tuple(words)
        self.environ = engines.environment(environ)  # finds our criu first

    def call(self, *words: str, seconds: float = STEP_SECONDS) -> Outcome:
        """Run one of runc's short commands to its end."""
        argv = (self.program, *self.globals, *words)
        with span("engine.command", command="runc"):
            return run(argv, seconds=seconds, environ=self.environ)

    def need(self, *words: str) -> str:
        """The same for what must succeed; gives what it printed, raises EngineFailed."""
        outcome = self.call(*words)
        if not outcome.succeeded:
            raise EngineFailed(f"runc {' '.join(words)} {outcome.reason()}")
        return outcome.stdout

    def state(self, container_id: str) -> dict[str, object] | None:
        """The state of a container, or None if runc answers that it does not exist.

        Raises EngineFailed if runc fails in any other way: a runc that is missing, killed or
        stopped by a deadline says nothing about the container, which may be running.
        """
        outcome = self.call("state", container_id)
        if outcome.code is not None and _ABSENT in outcome.stderr:
            return None
        if not outcome.succeeded:
            raise EngineFailed(f"runc state {container_id} {outcome.reason()}")
        try:
            told = json.loads(outcome.stdout)
        except ValueError:
            told = None
        if not isinstance(told, dict) or not isinstance(told.get("status"), str):
            raise EngineFailed(f"runc state {container_id} printed no state")
        return told

    def status(self, container_id: str) -> str:
        """`created`, `running`, `paused`, `stopped` or `absent`; raises EngineFailed."""
        state = self.state(container_id)
        return str(state["status"]) if state else "absent"

    def processes(self, container_id: str) -> list[int]:
        """The processes of a container, as the host numbers them; raises EngineFailed."""
        found = json.loads(self.need("ps", "--format", "json", container_id))
        return [int(each) for each in found or ()]

    def plain(self, argv: Sequence[str]) -> int:
        """Run a whole command line with the caller's own streams; gives its exit code."""
        # No pipe, no new session, no closed descriptors: as if the caller had run it.
        process = subprocess.Popen((self.program, *argv), close_fds=False, env=self.environ)
        return process.wait()

    def become(self, argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
        """Turn into runc. Does not return."""
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; exec hands that on
            signal.signal(number, signal.SIG_DFL)
        os.execve(self.program, (self.program, *argv), dict(environ))

    def supervise(
        self,
        argv: Sequence[str],
        limits: Limits,
        *,
        streams: bool,
        started: Callable[[Process], None],
    ) -> None:
        """Run a long command within its limits; raises EngineFailed, and then nothing of it runs
        any more. With `streams` it gets the caller's own, and hands them to the container."""
        sink = None if streams else subprocess.DEVNULL
        process = subprocess.Popen(
            (self.program, *argv),
            stdin=sink,
            stdout=sink,
            stderr=sink,
            close_fds=not streams,
            start_new_session=True,
            env=self.environ,
        )
        found = Process.of(process.pid)
        if found is not None:
            started(found)
        with span("engine.command", command="runc"):
            trouble = _watch(process, limits)
        if trouble is not None:
            kill_tree(process.pid)
            process.wait()
            raise EngineFailed(trouble)
        if process.returncode != 0:
            raise EngineFailed(f"it ended with code {process.returncode}{_last_words(limits.logs)}")

    def version(self) -> str:
        return _first_line(self.call("--version"))

    def criu(self) -> str:
        """The program that dumps and restores; raises Unsupported when there is none."""
        found = engines.find("criu", self.environ)
        if found is None:
            raise Unsupported("there is no criu here", hint="run `holdfast doctor`")
        return str(found.program)

    def criu_version(self) -> str:
        return _first_line(run((self.criu(), "--version"), seconds=STEP_SECONDS))


def be_a_parent() -> None:
    """See to it that children can be waited for and that none of our files becomes their stream,
    whatever the caller left us with."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, every exit code would read as 0
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:  # closed: the next file that is opened would take its place
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _watch(process: subprocess.Popen[bytes], limits: Limits) -> str | None:
    """Wait for the end; None, or the limit that was reached."""
    end = time.monotonic() + limits.seconds
    fd = os.pidfd_open(process.pid)
    try:
        while True:
            left = end - time.monotonic()
            if readable([fd], max(0.0, min(left, _LOOK_SECONDS))):
                process.wait()
                return None
            if left <= 0:
                return f"it did not end within {limits.seconds:g} s and was stopped"
            written = sum(path.stat().st_size for path in limits.logs.glob("*.log"))
            if written > limits.log_bytes:
                return f"it wrote {written} bytes of log and was stopped"
    finally:
        os.close(fd)


def working_in(folders: Sequence[str]) -> Process | None:
    """The first process, by number, that was told to work in one of these folders."""
    below = tuple(f"{folder}/".encode() for folder in folders)
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if below and any(word.startswith(below) for word in words):
            return Process.of(int(name))
    return None


def kill_tree(pid: int) -> None:
    """Kill a process and all below it. They are stopped first, so that none escapes by forking."""
    held: set[int] = set()
    while found := {pid, *below(pid)} - held:
        held |= found
        for each in found:
            _signal(each, signal.SIGSTOP)
    for each in held:
        _signal(each, signal.SIGKILL)


def below(pid: int) -> Iterator[int]:
    """The children of a process, theirs, and so on."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(fields[1]), []).append(int(name))
    pending = [pid]
    while pending:
        for child in children.get(pending.pop(), ()):
            yield child
            pending.append(child)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _last_words(logs: Path) -> str:
    """What CRIU called an error, from the end of its log."""
    for path in sorted(logs.glob("*.log")):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 65536))
            lines = file.read().decode(errors="replace").splitlines()
        # CRIU asks for more files than it may have, and goes on without them.
        errors = [
            line.partition(") ")[2]
            for line in lines
            if "Error (" in line and "RLIMIT_NOFILE" not in line
        ]
        if errors:
            return ": " + "; ".join(line[:300] for line in errors[:2])
    return ""


def _first_line(outcome: Outcome) -> str:
    return outcome.stdout.partition("\n")[0].strip()
