"""Syncs: every one that a promise of this level rests on goes through here, by name.

The names let a test leave out one of them at a time and see that a loss of power notices.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

Sync = Literal["part", "manifest", "parts' names", "checkpoint's name", "ledger"]


class Disk:
    """Durability as the operating system offers it."""

    def sync_file(self, fd: int, what: Sync) -> None:
        """Make a file's bytes durable."""
        os.fsync(fd)

    def sync(self, path: Path, what: Sync) -> None:
        """The same for a file, or for the names in a folder."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.sync_file(fd, what)
        finally:
            os.close(fd)

    def write(self, path: Path, data: bytes, what: Sync) -> None:
        """Write a new file, durably but for its name."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            self.sync_file(file.fileno(), what)
