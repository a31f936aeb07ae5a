"""Sweeping: what those who died left lying about."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from holdfast.model import moment
from holdfast.store.backends.local import beats

_TMP = re.compile(r"([0-9a-f]{16})-[0-9a-f]{8}")  # as `draft_path` makes them
_BEAT = re.compile(r"\.?[0-9a-f]{32}")
_AGE = 60  # seconds; a younger file may be one whose owner is just about to take its hold


def draft_path(tmp: Path, nonce: bytes | None = None) -> Path:
    """A new name for what is being written. What has it is swept up when it is old, unless the
    hold with this nonce of 8 bytes is alive; without a nonce it is nobody's."""
    owner = secrets.token_bytes(8) if nonce is None else nonce
    return tmp / f"{owner.hex()}-{secrets.token_hex(4)}"


def sweep_tmp(folder: Path, alive: set[bytes]) -> None:
    """Remove what writers left half written that are not among the living."""
    for path in folder.iterdir():
        match = _TMP.fullmatch(path.name)
        left = match and bytes.fromhex(match[1]) not in alive
        if left and path.is_file() and _is_old(path):
            path.unlink(missing_ok=True)


def sweep_leases(folder: Path) -> None:
    """Remove the signs of life of owners that are gone: looking at one does."""
    for path in folder.iterdir():
        if _BEAT.fullmatch(path.name) and path.is_file() and _is_old(path):
            beats.pulse(path)


def _is_old(path: Path) -> bool:
    try:
        return moment.now().timestamp() - path.stat().st_mtime > _AGE
    except FileNotFoundError:
        return False
