"""Writing past the system's file cache, where a file system offers it.

What is large and not read again soon pushes other files out of the cache; and on a machine whose
memory is lent to it by another, new pages for it take longer than the disk.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from holdfast.store.backends.contract import Buffer

BLOCK = 4096  # bytes: what any disk takes as a whole


class Direct:
    """A file that is being written by several threads, in whole blocks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._fd: int | None = None  # -1: it cannot be had

    def write(self, offset: int, pieces: Sequence[Buffer]) -> int:
        """Write as much as can go this way of pieces that follow each other, and say how many
        bytes that was. Raises OSError."""
        whole = _whole(pieces)
        fd = self._open() if whole and offset % BLOCK == 0 else -1
        if fd < 0:
            return 0
        try:
            return os.pwritev(fd, whole, offset) // BLOCK * BLOCK
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return 0  # they lie where the disk cannot take them from

    def _open(self) -> int:
        with self._lock:
            if self._fd is None:
                try:
                    self._fd = os.open(self._path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
                except OSError:  # by whatever is not possible here: there is the other way
                    self._fd = -1
            return self._fd

    def close(self) -> None:
        """May be called twice."""
        with self._lock:
            if self._fd is not None and self._fd >= 0:
                os.close(self._fd)
            self._fd = -1


def _whole(pieces: Sequence[Buffer]) -> list[memoryview]:
    """What of them is whole blocks, from the beginning on."""
    found: list[memoryview] = []
    for piece in pieces:
        size = len(piece) // BLOCK * BLOCK
        if size:
            found.append(memoryview(piece)[:size])
        if size < len(piece):
            break
    return found
