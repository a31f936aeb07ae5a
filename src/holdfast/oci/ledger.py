"""Counts how often each checkpoint failed its container, so that none is tried for ever."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from holdfast.model.disk import Disk
from holdfast.oci.private import private_folder


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """Failures by checkpoint id, and the newest checkpoint when the container last crashed."""

    failures: dict[str, int] = {}
    crashed: str | None = None

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """The ledger in a file; none, or one that cannot be read, is empty."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
            return cls()

    def of(self, checkpoint: str) -> int:
        return self.failures.get(checkpoint, 0)

    def changed(self, checkpoint: str, by: int) -> Ledger:
        """One more or one less for a checkpoint; never below zero."""
        count = max(0, self.of(checkpoint) + by)
        others = {each: n for each, n in self.failures.items() if each != checkpoint}
        failures = {**others, checkpoint: count} if count else others
        return Ledger(failures=failures, crashed=self.crashed)

    def write(self, path: Path, disk: Disk | None = None) -> None:
        """Replace the file, durably: what it counts may take the machine down."""
        private_folder(path.parent)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)  # of a process that died, and had this one's number
        disk = disk or Disk()
        if not path.exists():  # else who wrote it first has done this
            disk.sync_way(path.parent, "ledger place")
        disk.write(draft, msgspec.json.encode(self), "ledger data")
        draft.rename(path)
        disk.sync_directory(path.parent, "ledger name")


def count(path: Path, checkpoint: str, by: int, disk: Disk | None = None) -> None:
    """Change one count in a ledger file."""
    Ledger.read(path).changed(checkpoint, by).write(path, disk)
