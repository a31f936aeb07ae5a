"""Nothing stays half done: a container that we froze is thawed, a layer that we emptied is filled.

While an operation runs, a forked guard waits at the other end of a pipe. If the wrapper dies
without a word, the guard undoes what the operation's record says. If both die, the next command
about the container does, by the same function.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from holdfast.oci.engine import Runc, kill_tree, working_in
from holdfast.oci.layer.extract import put_back
from holdfast.oci.state import ContainerState, Operation, Process
from holdfast.runtime.trial import clear, detach

_DONE = b"done"
_WAIT_SECONDS = 0.05
_MOST_SERVERS = 10


class Undo:
    """Knows how to undo an operation on one container."""

    def __init__(
        self, runc: Runc, state: ContainerState, root: str, container_id: str, patience: float
    ) -> None:
        self._runc = runc
        self._root = root
        self._state = state
        self._id = container_id
        self._patience = patience  # seconds that a dump may still take

    def __call__(self) -> Operation | None:
        """Undo what is recorded; gives it, or None when there was nothing. May be called twice."""
        operation = self._state.operation
        if operation is None:
            return None
        # A wrapper may die between starting the engine and recording it; then the engine is known
        # by the folder it works in, which nobody else has.
        engine = operation.engine or working_in(operation.scratch)
        if engine is not None and engine.alive:
            if operation.what == "checkpoint":
                # A dump that is killed leaves foreign code in the processes it was dumping.
                _wait_for(engine, self._patience)
            if engine.alive:
                kill_tree(engine.pid)
        if operation.what == "restore":
            _end_servers(operation.scratch)
            # A runc that was killed leaves a mount in its own folder and cannot delete that then.
            detach(Path(self._root) / self._id)
            self._runc.call("delete", "--force", self._id)
            if operation.upper is not None:
                put_back(operation.upper, operation.aside)
        if operation.paused:
            self._runc.call("resume", self._id)
        for folder in operation.scratch:
            clear(Path(folder))
        self._state.operation = None
        return operation


def _end_servers(folders: tuple[str, ...]) -> None:
    """End whoever still works for a restore: a daemon that would have served its pages."""
    for _ in range(_MOST_SERVERS):
        process = working_in(folders)
        if process is None:
            return
        kill_tree(process.pid)
        _wait_for(process, 1.0)


def _wait_for(process: Process, seconds: float) -> None:
    end = time.monotonic() + seconds
    while process.alive and time.monotonic() < end:
        time.sleep(_WAIT_SECONDS)


def unfinished(state: ContainerState, seconds: float) -> bool:
    """Whether an operation was left half done by a wrapper and a guard that are both gone. While
    a guard is at work, wait for it."""
    operation = state.operation
    if operation is None or operation.owner.alive:
        return False
    if operation.guard is not None:
        _wait_for(operation.guard, seconds)
    return state.operation is not None


def interrupt(state: ContainerState, undo: Callable[[], object], seconds: float) -> None:
    """End an operation that is in progress and wait until it is undone. Its owner is killed: a
    guard undoes what it was doing, whatever that was."""
    operation = state.operation
    if operation is None:
        return
    if operation.owner.alive:
        os.kill(operation.owner.pid, signal.SIGKILL)
        _wait_for(operation.owner, seconds)
    if unfinished(state, seconds):
        undo()


@contextmanager
def guarded(
    state: ContainerState, operation: Operation, undo: Callable[[], object]
) -> Iterator[None]:
    """Run an operation that is undone if it raises, and also if this process is killed."""
    state.operation = operation
    reader, writer = os.pipe()
    guard = os.fork()
    if guard == 0:
        _stand_by(reader, undo)
    os.close(reader)
    state.operation = msgspec.structs.replace(operation, guard=Process.of(guard))
    try:
        yield
    except BaseException:
        undo()
        raise
    finally:
        state.operation = None
        with suppress(BrokenPipeError):  # a guard that was killed cannot listen
            os.write(writer, _DONE)
        os.close(writer)
        os.waitpid(guard, 0)


def _stand_by(reader: int, undo: Callable[[], object]) -> None:
    """The guard's whole life. Never returns."""
    code = 1
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        os.closerange(3, reader)
        os.closerange(reader + 1, 4096)
        if os.read(reader, len(_DONE)) != _DONE:
            undo()
        code = 0
    finally:
        os._exit(code)


def note(state: ContainerState, **changes: object) -> None:
    """Add to the record of the operation that is in progress."""
    operation = state.operation
    if operation is not None:
        state.operation = msgspec.structs.replace(operation, **changes)
