"""Folders for root alone: every folder that we make on the way gets the same permissions."""

from __future__ import annotations

from pathlib import Path

from holdfast.model.files import make_folder


def private_folder(folder: Path) -> Path:
    """Make a folder and those above it that are missing, all 0700; one that is there stays as it
    is. `Path.mkdir(parents=True, mode=0o700)` would leave the upper ones open to everybody."""
    make_folder(folder)
    return folder
