"""Notes about stores in HOLDFAST_HOME: for people to look at, and nothing relies on them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.model.files import make_folder, publish
from holdfast.model.home import home

_MOST = 100  # stores


class Notes:
    """One file, with one note for each store's URL."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._known: tuple[object, dict[str, object]] = (None, {})

    def keep(self, store: str, told: object) -> None:
        """Note something down in place of what was there."""
        notes = {**{name: each for name, each in self._all().items() if name != store}, store: told}
        path = self._path()
        with suppress(OSError):  # a home that cannot be written keeps no notes
            make_folder(path.parent)
            publish(path, json.dumps(dict(list(notes.items())[-_MOST:])).encode())

    def read(self, store: str) -> dict[str, Any] | None:
        """What was noted; None when nothing was."""
        found = self._all().get(store)
        return found if isinstance(found, dict) else None

    def _all(self) -> dict[str, object]:
        """Every store's note. Watchers ask often: the file is read when it is another one."""
        path = self._path()
        try:
            stat = path.stat()
            version = (path, stat.st_ino, stat.st_mtime_ns, stat.st_size)
            known, notes = self._known
            if known != version:
                found = json.loads(path.read_bytes())
                notes = found if isinstance(found, dict) else {}
                self._known = (version, notes)
        except (OSError, ValueError):
            return {}
        return notes

    def _path(self) -> Path:
        return home() / self._file
