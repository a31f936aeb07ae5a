"""Folders that several processes use: who reads one, and how another takes its place at once."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.model.errors import Unsupported

_CWD = -100
_EXCHANGE = 2
_UNABLE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ENOLCK)


@contextmanager
def shared(lock: Path) -> Iterator[None]:
    """As long as this lasts nobody is `alone`. Where no lock can be had, as on a disk that cannot
    be written, nobody can change anything either."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


@contextmanager
def alone(lock: Path, *, wait: bool = True) -> Iterator[bool]:
    """Nobody else has this lock, shared or not; gives whether that is so. Without `wait` it may not
    be. Raises OSError where there are no locks."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(fd)


def exchange(one: Path, other: Path) -> None:
    """Two folders of one disk change their names, at once or not at all; raises Unsupported where
    the kernel or the file system cannot do that."""
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "renameat2", None)
    if call is None:
        raise Unsupported("this system cannot exchange two folders")
    if call(_CWD, os.fsencode(one), _CWD, os.fsencode(other), _EXCHANGE) != 0:
        number = ctypes.get_errno()
        if number in _UNABLE:
            raise Unsupported("this file system cannot exchange two folders")
        raise OSError(number, os.strerror(number), str(other))
