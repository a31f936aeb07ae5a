"""When each store was last verified, and what came of it: a note in HOLDFAST_HOME.

It is for people to look at, and nothing relies on it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

from holdfast.model import moment
from holdfast.model.home import home
from holdfast.model.report import Verification

_FILE = "verified.json"
_MOST = 100  # stores


def note(store: str, found: Verification) -> None:
    """Remember a verification of the store with this URL."""
    told = {
        "time": moment.to_text(moment.now()),
        "ok": found.ok,
        "deep": found.deep,
        "problems": len(found.problems),
        "checkpoints": found.checkpoints,
    }
    notes = {**{name: each for name, each in _read().items() if name != store}, store: told}
    path = _path()
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(dict(list(notes.items())[-_MOST:])))
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)  # a home that cannot be written keeps no notes


def last(store: str) -> dict[str, object] | None:
    """The last verification of that store; None when none is known."""
    found = _read().get(store)
    return cast("dict[str, object]", found) if isinstance(found, dict) else None


def _read() -> dict[str, object]:
    try:
        found = json.loads(_path().read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _path() -> Path:
    return home() / _FILE
