"""The runway: zeros ahead of the last entry of a log's segment, which the next ones are written
over (spec/store-v1.md, section 4).

A file that grows needs an entry in the file system's journal, and its sync waits for that; one that
does not, only for its bytes. The zeros promise nothing, so nobody syncs them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.model.errors import HoldfastError
from holdfast.store.backends.files import open_file, write_all, write_pieces
from holdfast.store.backends.local.loglock import LogLock
from holdfast.store.log.frames import REMAINS, Buffer

AHEAD = 64 * 1024
_SMALL = AHEAD // 8  # larger entries gain little, and would need new zeros each time
_LARGE = 4 * AHEAD  # bytes of an entry whose pages are worth giving back
_LOOK = 8  # bytes; a frame does not begin with so many zeros
_PAGE = mmap.PAGESIZE
_ZEROS = bytes(AHEAD)


class Runway:
    """The segment that is written to and looked at again and again: it stays open."""

    def __init__(self, lock: LogLock) -> None:
        self._lock = lock
        self._path: Path | None = None
        self._fd = -1
        self._writer = 0  # the process that opened it to write; 0: it was opened to read
        self._end = 0  # of what we have written; 0: nothing
        self._spare: tuple[int, int] | None = None  # bytes whose pages others may have

    def ends_at(self, path: Path, offset: int) -> bool:
        """Whether nothing was added behind an entry that ends there, nor the entry taken back.

        One look tells, where what follows the entry was its end or zeros when it was read."""
        self._clear()
        found = os.pread(self._open(path, writable=False), 2 * _LOOK, offset - _LOOK)
        return len(found) >= _LOOK and not any(found[_LOOK:])

    def enter(self, path: Path) -> None:
        """Be ready to write to a segment; raises as `open_file` does."""
        self._open(path, writable=True)

    def write(self, pieces: Sequence[Buffer], offset: int, *, spare: bool) -> int:
        """Write an entry, and zeros behind it when more are to be expected, and there is space to
        `spare`; gives the descriptor to sync."""
        size = sum(map(len, pieces))
        again = spare and self._end > 0 and size <= _SMALL
        more = again and offset + size > os.fstat(self._fd).st_size
        self._end = end = write_pieces(self._fd, pieces, offset)
        if more:
            with suppress(OSError):  # where there is no room for them, one goes on without
                write_all(self._fd, _ZEROS, end)
        return self._fd

    def give_way(self, offset: int) -> None:
        """The last entry, which began there, is durable. A large one is not read again before
        something is brought back, so that its pages are better used for the next: a machine whose
        memory is lent to it by another takes longer to get new ones than to write to the disk.
        Not the page that it ends in: `ends_at` looks there before anything else is done. And not
        now, when somebody waits to hear that it is durable, but with that look."""
        if self._end - offset >= _LARGE:
            self._spare = offset, (self._end - _LOOK) // _PAGE * _PAGE

    def _clear(self) -> None:
        """Give pages back."""
        spare, self._spare = self._spare, None
        if spare is not None and self._path is not None:
            with suppress(OSError):  # a file system may not take advice
                os.posix_fadvise(self._fd, spare[0], spare[1] - spare[0], os.POSIX_FADV_DONTNEED)

    def take_back(self, pieces: Sequence[Buffer], offset: int) -> None:
        """Cut an entry that could not be made durable, to what nobody takes for an end."""
        self._end = 0
        size = min(os.fstat(self._fd).st_size, offset + REMAINS)
        os.ftruncate(self._fd, size)
        if size > offset:
            # The system may have forgotten what it failed to write: then zeros are there.
            os.pwrite(self._fd, b"".join(pieces)[: size - offset], offset)

    def check(self) -> None:
        """Let go of a file that somebody removed: what others read is another one."""
        self._clear()
        if self._path is not None and not os.fstat(self._fd).st_nlink:
            self._close()

    def give_back(self) -> None:
        """Cut off what we laid out. Where others have built on it, or are about to, it is left to
        them, and a forked child leaves it to its parent. Nothing else here is touched: a thread
        may still be at work when the program ends."""
        with suppress(HoldfastError):
            if self._end and self._writer == os.getpid():
                with self._lock.held(patience=0):
                    path, end = self._path, self._end
                    if path is not None and end:
                        cut(path, end)

    def close(self) -> None:
        """Give back, and let go of the file; whoever goes on opens it again."""
        self.give_back()
        self._close()

    def _open(self, path: Path, *, writable: bool) -> int:
        # Comparing paths takes a microsecond, so the one that is asked for is kept.
        same = path is self._path or path == self._path
        if not same or (writable and not self._writer):
            self._close()
            self._fd = open_file(path, os.O_RDWR if writable else os.O_RDONLY)
            self._writer = os.getpid() if writable else 0
        self._path = path
        return self._fd

    def _close(self) -> None:
        self._clear()
        self._end = 0
        if self._path is not None:
            self._path = None
            os.close(self._fd)

    def __del__(self) -> None:
        self._close()


def cut(path: Path, end: int) -> None:
    """Cut off the zeros behind an entry that ends there, if nothing else is. Whoever calls has the
    log's lock; where it cannot be done the zeros do no harm."""
    with suppress(OSError, HoldfastError):
        if path.stat().st_size > end and is_clear(path, end):
            os.truncate(path, end)


def is_clear(path: Path, offset: int) -> bool:
    """Whether a file has nothing but zeros from there on, or ends there."""
    with open(open_file(path), "rb") as file:
        if os.fstat(file.fileno()).st_size < offset:
            return False
        file.seek(offset)
        while piece := file.read(AHEAD):
            if piece.count(0) != len(piece):
                return False
    return True


def used_size(path: Path, known: int) -> int:
    """The size of a file without the zeros at its end; the first `known` bytes are none of them."""
    with open(open_file(path), "rb") as file:
        end = os.fstat(file.fileno()).st_size
        while end > known:
            start = max(known, end - AHEAD)
            file.seek(start)
            left = file.read(end - start).rstrip(b"\0")
            end = start + len(left)
            if left:
                break
    return end
