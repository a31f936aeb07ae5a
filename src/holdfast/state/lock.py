"""The lock of a session: one writer at a time, on one machine, also across threads."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.model.errors import Conflict

# A writer needs milliseconds. One that keeps the lock this long is stopped or hangs on a disk.
PATIENCE = 30.0


@contextmanager
def held(path: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock file. Raises Conflict when somebody else holds it for too long, or OSError.

    The kernel releases it when its holder dies. The file stays: removing it would let two
    writers lock two different files of the same name.
    """
    # Opened anew each time: threads and forked children must not share one holding.
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _wait_for(lock, path, patience)
        yield
    finally:
        os.close(lock)


def _wait_for(lock: int, path: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    pause = 0.001
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Conflict(
                    f"another process has held {path} for {patience:g} s",
                    hint=f"`fuser -v {path}` shows which",
                ) from None
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
