"""The lock of a local log: whoever appends holds it, for one write and one sync.

Its file stays open from one entry to the next. A forked child closes its copy at once: with it, a
parent that is killed while it writes would leave the lock to the child.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.model.errors import Conflict, from_os_error
from holdfast.model.files import PRIVATE, Access, open_or_create

PATIENCE = 30.0  # seconds

_locks: weakref.WeakSet[LogLock] = weakref.WeakSet()


class LogLock:
    """Nobody else appends while it is held, neither another thread nor another process."""

    def __init__(self, path: Path, patience: float = PATIENCE, access: Access = PRIVATE) -> None:
        self._path = path
        self._access = access
        self._patience = patience
        self._mutex = threading.Lock()
        self._fd = -1
        _locks.add(self)

    @contextmanager
    def held(self, reading: bool = False, patience: float | None = None) -> Iterator[None]:
        """Raises Conflict when somebody else holds it for too long."""
        with self._mutex:
            fd = self._opened(reading)
            self._wait(fd, self._patience if patience is None else patience)
            try:
                yield
            finally:
                if self._fd == fd:  # else this is a forked child, which has nothing to let go of
                    fcntl.flock(fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file; whoever locks again opens it again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _opened(self, reading: bool) -> int:
        # A file without a name is one that others do not find: somebody removed it.
        if self._fd >= 0 and os.fstat(self._fd).st_nlink:
            return self._fd
        self.close()
        flags = os.O_RDONLY if reading and self._path.exists() else os.O_RDWR
        try:
            self._fd = open_or_create(self._path, self._access, flags | os.O_NONBLOCK)
        except OSError as error:
            raise from_os_error(error, "locking the log") from error
        return self._fd

    def _wait(self, fd: int, patience: float) -> None:
        deadline = time.monotonic() + patience
        pause = 0.0002
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = _holder(os.fstat(fd).st_ino)
                    raise Conflict(
                        f"the store's log has been locked for {patience:g} s{holder}",
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


def _close_all_in_child() -> None:
    for lock in list(_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_all_in_child)
