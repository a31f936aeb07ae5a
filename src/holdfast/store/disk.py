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
    "log tail",
    "log names",
    "pack data",
    "pack name",
    "snapshot data",
]


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
