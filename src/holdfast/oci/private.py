"""Folders for root alone: every folder that we make on the way gets the same permissions."""

from __future__ import annotations

import contextlib
from pathlib import Path


def private_folder(folder: Path) -> Path:
    """Make a folder and those above it that are missing, all 0700; one that is there stays as it
    is. `Path.mkdir(parents=True, mode=0o700)` would leave the upper ones open to everybody."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):  # somebody else made it just now
            each.mkdir(mode=0o700)
    return folder
