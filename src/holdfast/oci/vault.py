"""Where container checkpoints are kept: one contract, a directory or a store behind it.

A capture is put together in a *staged* folder whose files are named like the parts. `save` makes
it a checkpoint, whole or not at all; `fetch` gives such a folder back, and only after every byte
of it has been verified.
"""

from __future__ import annotations

import builtins
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from holdfast.model.subject import Subject
from holdfast.runtime.trial import clear

MEMORY = "memory"
LAYER = "files/upper"
CONFIG = "config"
ENVIRONMENT = "environment"
REPORT = "report"
WORK = ".work"  # beside the parts in a staged folder; not part of it


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of a container, as a vault knows it without reading it."""

    id: str
    subject: Subject
    time: datetime
    size_bytes: int
    reason: str
    written_bytes: int | None = None  # what keeping it took, where that is known


class Vault(Protocol):
    """What a mode must be able to do."""

    def stage(self) -> Path:
        """A name for a new folder in which a capture is put together. Whoever asked makes it,
        after recording that it is there."""
        ...

    def save(self, subject: Subject, staged: Path, reason: str) -> Saved:
        """Make a staged folder a checkpoint, durably; the folder is used up."""
        ...

    def list(self, subject: Subject) -> builtins.list[Saved]:
        """The checkpoints of one container, newest first. Nothing is verified."""
        ...

    def subjects(self) -> builtins.list[Subject]:
        """Every container of which there is a checkpoint."""
        ...

    def reading(self, subject: Subject) -> AbstractContextManager[None]:
        """As long as this lasts, what `fetch` gave stays as it is."""
        ...

    def fetch(self, saved: Saved, scratch: Path) -> Path:
        """A folder with a checkpoint's parts, every byte verified; it is in `scratch` or the
        vault's own, and is not to be changed. Raises Corrupt, Denied or NotFound."""
        ...

    def check(self, saved: Saved) -> None:
        """Read a checkpoint again, every byte; raises as `fetch` does."""
        ...

    def forget(self, saved: Saved) -> None:
        """Remove a checkpoint."""
        ...

    def keep(self, subject: Subject, count: int) -> None:
        """Remove all but the newest checkpoints, where the vault has no retention of its own."""
        ...

    def sweep(self) -> None:
        """Remove what captures that nobody remembers left in the making."""
        ...

    def ledger(self, subject: Subject) -> Path:
        """The file in which failures of this container's checkpoints are counted."""
        ...


def sweep(folder: Path, older_than: float = 24 * 3600) -> None:
    """Clear the folders in one that nobody has touched for a day: after a loss of power, no
    record says any more whose they were."""
    if folder.is_dir():
        now = time.time()
        for each in folder.iterdir():
            if now - each.stat().st_mtime > older_than:
                clear(each)


def part_files(folder: Path) -> list[tuple[str, Path]]:
    """The parts in a staged folder, by name."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not name.startswith((".", "manifest.")) and path.is_file() and not path.is_symlink():
            found.append((name, path))
    return found
