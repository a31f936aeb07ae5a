"""The lock of a local log: whoever appends holds it, for one write and one sync."""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.model.errors import Conflict, from_os_error

PATIENCE = 30.0  # seconds


class LogLock:
    """Nobody else appends while it is held, neither another thread nor another process."""

    def __init__(self, path: Path, patience: float = PATIENCE) -> None:
        self._path = path
        self._patience = patience
        self._mutex = threading.Lock()

    @contextmanager
    def held(self, reading: bool = False) -> Iterator[None]:
        """Raises Conflict when somebody else holds it for too long."""
        with self._mutex:
            path = self._path
            flags = os.O_RDONLY if reading and path.exists() else os.O_RDWR | os.O_CREAT
            try:
                fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise from_os_error(error, "locking the log") from error
            try:
                self._wait(fd)
                yield
            finally:
                # Closing alone would leave the lock to a child that was forked meanwhile.
                fcntl.flock(fd, fcntl.LOCK_UN)
                os.close(fd)

    def _wait(self, fd: int) -> None:
        deadline = time.monotonic() + self._patience
        pause = 0.0002
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = _holder(os.fstat(fd).st_ino)
                    raise Conflict(
                        f"the store's log has been locked for {self._patience:g} s{holder}",
                        hint=f"a stopped process may hold {self._path}; continue or end it",
                    ) from None
                time.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 1.5, 0.01)


def _holder(inode: int) -> str:
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            return f" by process {fields[4]}"
    return ""
