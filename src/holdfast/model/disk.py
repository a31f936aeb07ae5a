"""The disk: every sync that a promise of durability rests on goes through here, by name.

The names let a test leave out one sync at a time and see that a power loss notices.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

# What is being made durable: a file's bytes, or its name in a directory. Each has one place in the
# code, so that none is left out together with another that is needed.
StoreSync = Literal[
    "key place",
    "key data",
    "key name",
    "store place",
    "layout",
    "marker data",
    "marker name",
    "another's marker name",
    "segment data",
    "segment name",
    "entry",
    "log tail",
    "log names",
    "pack data",
    "pack name",
    "snapshot data",
]
FileSync = Literal[
    "key file data",
    "key file name",
    "imported key's place",
    "imported key's name",
    "archive data",
    "archive name",
]
SlotSync = Literal["slots' place", "slot data", "slot name", "another's slot name", "slot's end"]
StateSync = Literal["state place", "state data", "state name"]
ContainerSync = Literal[
    "part",
    "signature",
    "manifest",
    "parts' names",
    "checkpoint's name",
    "checkpoint's place",
    "rewritten name",
    "ledger place",
    "ledger data",
    "ledger name",
]
ServerSync = Literal["pass place", "pass data", "pass name", "workspace data"]
Sync = Literal[StoreSync, FileSync, SlotSync, StateSync, ContainerSync, ServerSync, "probe"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Disk:
    """Durability as the operating system offers it."""

    def sync_file(self, fd: int, what: Sync) -> None:
        """Make the file's bytes and length durable."""
        os.fdatasync(fd)

    def sync_directory(self, path: Path, what: Sync) -> None:
        """Make the names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_way(self, path: Path, what: Sync) -> None:
        """Make the directory's own name durable, and the names of all above it.

        Some of them may be new, made by us or by somebody who died before syncing them. Where
        we may not look we can have made nothing.
        """
        for folder in path.parents:
            if folder.stat().st_dev != path.stat().st_dev:
                break  # a mount point lasts by other means
            with suppress(PermissionError):
                self.sync_directory(folder, what)

    def write(self, path: Path, data: bytes, what: Sync) -> None:
        """Write a new file, for its user alone, durably but for its name."""
        fd = os.open(path, _NEW, 0o600)
        with open(fd, "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            # Some file systems only say here that the disk is full.
            self.sync_file(fd, what)
