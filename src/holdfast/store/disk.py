"""The disk: every sync that a promise of durability rests on goes through here, by name.

The names let a test leave out one sync at a time and see that a power loss notices.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

# What is being made durable: a file's bytes, or its name in a directory.
Sync = Literal[
    "key data",
    "key name",
    "layout",
    "marker data",
    "marker name",
    "segment data",
    "segment name",
    "entry",
    "pack data",
    "pack name",
    "snapshot data",
    "snapshot name",
]
Published = Literal["marker", "segment", "pack", "snapshot"]


class Disk:
    """Durability as the operating system offers it."""

    def sync_file(self, fd: int, what: Sync) -> None:
        """Make the file's bytes and length durable."""
        os.fdatasync(fd)

    def sync_directory(self, path: Path, what: Sync) -> None:
        """Make the names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def publish(self, fd: int, draft: Path, final: Path, what: Published) -> None:
        """Give a finished file its name: bytes durable, renamed, name durable."""
        # Literal types cannot be built from parts; the table keeps them checked.
        data, name = _PUBLISH[what]
        self.sync_file(fd, data)
        draft.rename(final)
        self.sync_directory(final.parent, name)


_PUBLISH: dict[Published, tuple[Sync, Sync]] = {
    "marker": ("marker data", "marker name"),
    "segment": ("segment data", "segment name"),
    "pack": ("pack data", "pack name"),
    "snapshot": ("snapshot data", "snapshot name"),
}
