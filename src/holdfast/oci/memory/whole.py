"""An increment made whole: each page is looked for in the line, newest first, and written once.

Where the file system lets files share blocks (XFS, Btrfs), no page is copied.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np

from holdfast.model.errors import Unsupported
from holdfast.oci.compression import ZSTD, expand, is_compressed
from holdfast.oci.memory.pagemap import PAGE, Pagemap, is_increment, pagemaps
from holdfast.oci.memory.runs import Memory, Run

_FICLONERANGE = 0x4020940D
_RANGE = struct.Struct("=qQQQ")  # source, offset there, length, offset here
_CANNOT = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)

Put = Callable[[BinaryIO, Run], object]  # brings the pages of a run to the end of a file


def flatten(folder: Path, out: Path) -> None:
    """Write the maps and pages of a dump to another folder, so that it needs no other. Raises
    Unsupported, Corrupt."""
    with ExitStack() as stack:
        _flatten(folder, out, _Copier(stack))


def make_whole(folder: Path, out: Path) -> None:
    """Make the images in a folder whole and raw in another one, which is empty; files that stay as
    they are are shared."""
    if is_increment(folder):
        flatten(folder, out)
    written = {path.name for path in out.iterdir()}
    for path in folder.iterdir():
        name = path.name.removesuffix(ZSTD)
        if name not in written and path.is_file() and not path.is_symlink():
            bring(path, out / name)


def bring(path: Path, place: Path) -> None:
    """Have a file at another place, too, raw: the same one, a copy, or what it stands for."""
    if is_compressed(path) and not is_compressed(place):
        with place.open("xb") as out:
            expand(path, out)
        return
    try:
        os.link(path, place)
    except OSError as error:  # another disk, or one without links
        if error.errno not in (*_CANNOT, errno.EMLINK):
            raise
        shutil.copyfile(path, place)


def clone_whole(folder: Path, out: Path) -> bool:
    """Make a dump whole in a new folder on the same file system, if that takes no copying; whether
    it could be done. Raises OSError for what is no lack of ability."""
    try:
        with ExitStack() as stack:
            _flatten(folder, out, _Cloner(stack))
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


def _flatten(folder: Path, out: Path, put: Put) -> None:
    maps = {name: Pagemap.read(folder / name) for name in pagemaps(folder)}
    shared = [n for n, count in Counter(m.pages_name for m in maps.values()).items() if count > 1]
    if shared:
        raise Unsupported(f"{shared[0]} has the pages of several maps, and stays as it is")
    for name, pagemap in maps.items():
        memory = Memory.read(folder, name)
        entries = []
        with (out / pagemap.pages_name).open("xb", buffering=0) as file:
            for entry in pagemap.entries:
                if entry.in_parent or entry.present:
                    entries.append(entry.cut(0, entry.count, in_parent=False))
                    for run in memory.within(entry.page, entry.page + entry.count):
                        put(file, run)
                else:
                    entries.append(entry)
        whole = Pagemap(pagemap.magic, pagemap.head, tuple(entries))
        (out / name).write_bytes(whole.encode())


class _Sources:
    """The files that runs are in. They stay open: there are few."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._open: dict[Path, BinaryIO | None] = {}

    def of(self, run: Run) -> BinaryIO | None:
        """The file of a run, or None if it is kept compressed."""
        if run.file not in self._open:
            there = run.file.exists()
            self._open[run.file] = self._stack.enter_context(run.file.open("rb")) if there else None
        return self._open[run.file]


class _Copier(_Sources):
    """Has the kernel copy, which shares blocks where that is possible."""

    def __call__(self, file: BinaryIO, run: Run) -> object:
        source = self.of(run)
        at, left = run.at * PAGE, len(run.data) * PAGE
        while left and source is not None:
            try:
                done = os.copy_file_range(source.fileno(), file.fileno(), left, offset_src=at)
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                break
            if done == 0:
                break
            at, left = at + done, left - done
        data = np.ascontiguousarray(run.data).data.cast("B")
        while left:
            left -= file.write(data[-left:])
        return None


class _Cloner(_Sources):
    """Lets the end of a file share the blocks of a run, or fails."""

    def __call__(self, file: BinaryIO, run: Run) -> object:
        source = self.of(run)
        if source is None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(run.file))
        length, end = len(run.data) * PAGE, file.seek(0, os.SEEK_END)
        words = _RANGE.pack(source.fileno(), run.at * PAGE, length, end)
        return fcntl.ioctl(file.fileno(), _FICLONERANGE, words)
