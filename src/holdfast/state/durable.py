"""Durable writes: a file is there whole, for good, or not at all. And reads that never hang."""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path

from holdfast.model.disk import Disk
from holdfast.model.errors import Corrupt
from holdfast.model.files import publish

log = logging.getLogger("holdfast.state")

# Without waiting: to open a FIFO would wait for its writer, perhaps for ever.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read(path: Path) -> tuple[bytes, os.stat_result]:
    """What is in a file, and its signs. Raises OSError; Corrupt for what is no regular file."""
    try:
        opened = os.open(path, _READ)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # links in a circle; a socket
            raise Corrupt(f"not a regular file: {error.strerror}") from None
        raise
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise Corrupt("not a regular file")
        with open(opened, "rb", buffering=0, closefd=False) as stream:
            return stream.readall(), found
    finally:
        os.close(opened)


def write(final: Path, data: bytes, unfinished: Path, disk: Disk) -> None:
    """Put the data under its name, replacing what is there; raises OSError.

    `unfinished` is in the same directory. When this raises, it is gone again and `final` is what
    it was; the one exception is a directory that cannot be synced, when `final` may be new.
    """
    publish(final, data, draft=unfinished, sync=(disk, "state data", "state name"))


def remove(path: Path) -> bool:
    """Remove a file that nobody needs. When it stays, that is logged, and False."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("could not remove %s: %s", path, error)
        return False
    return True
