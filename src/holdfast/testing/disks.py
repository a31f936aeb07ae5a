"""Disks that do less than they promise, to show that a promise was needed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from holdfast.model.disk import Disk, Sync


class ForgetfulDisk(Disk):
    """Leaves out the syncs that are named in `drop`."""

    def __init__(self, drop: Collection[Sync]) -> None:
        self._drop = frozenset(drop)

    def sync_file(self, fd: int, what: Sync) -> None:
        if what not in self._drop:
            super().sync_file(fd, what)

    def sync_directory(self, path: Path, what: Sync) -> None:
        if what not in self._drop:
            super().sync_directory(path, what)
