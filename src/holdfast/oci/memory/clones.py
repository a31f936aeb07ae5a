"""Whole images of an increment without copying a page: the file system lets files share blocks.

XFS and Btrfs can; where it cannot be done, nothing is left of the attempt.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from holdfast.oci.memory.increment import flatten
from holdfast.oci.memory.pagemap import PAGE, pagemaps
from holdfast.oci.memory.runs import Run

_FICLONERANGE = 0x4020940D
_RANGE = struct.Struct("=qQQQ")  # source, offset there, length, offset here
_CANNOT = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)


def clone_whole(folder: Path, out: Path) -> bool:
    """Make the images of an increment whole in a new folder on the same file system; whether that
    could be done. Raises OSError for what is no lack of ability."""
    try:
        with ExitStack() as stack:
            flatten(folder, out, _Cloner(stack))
        written = {*pagemaps(out), *(path.name for path in out.glob("pages-*.img"))}
        for path in folder.iterdir():
            if path.name not in written and path.is_file() and not path.is_symlink():
                os.link(path, out / path.name)
    except OSError as error:
        shutil.rmtree(out)
        if error.errno not in _CANNOT:
            raise
        return False
    return True


class _Cloner:
    """Lets the end of a file share the blocks of a run. Sources stay open: there are few."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._sources: dict[Path, BinaryIO] = {}

    def __call__(self, file: BinaryIO, run: Run) -> object:
        source = self._sources.get(run.file)
        if source is None:
            source = self._sources[run.file] = self._stack.enter_context(run.file.open("rb"))
        length, end = len(run.data) * PAGE, file.seek(0, os.SEEK_END)
        words = _RANGE.pack(source.fileno(), run.at * PAGE, length, end)
        return fcntl.ioctl(file.fileno(), _FICLONERANGE, words)
