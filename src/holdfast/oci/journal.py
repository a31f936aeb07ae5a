"""Where the wrapper speaks: its own log, and runc's. Never stdout or stderr: those are the
container's."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Literal

from holdfast.model import moment
from holdfast.model.files import open_or_create
from holdfast.oci.private import private_folder

Level = Literal["info", "warning", "error"]
LIMIT = 1024 * 1024


class Journal:
    """One JSON line for each thing that is worth knowing. It cannot grow for ever: at `LIMIT`
    bytes the file becomes `NAME.1`, in place of the one before."""

    def __init__(self, path: Path, container: str = "") -> None:
        self._path = path
        self._container = container

    def write(self, level: Level, message: str, **details: object) -> None:
        """Add a line. A log that cannot be written stops no container, so it is left out then."""
        line = {
            "time": moment.to_text(moment.now()),
            "level": level,
            "container": self._container,
            "msg": message,
            **details,
        }
        try:
            self._append(json.dumps(line, ensure_ascii=False, default=str).encode() + b"\n")
        except OSError:
            return

    def _append(self, line: bytes) -> None:
        private_folder(self._path.parent)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, line)
            if os.fstat(fd).st_size > LIMIT and self._still_named(fd):
                self._path.rename(self._path.with_name(f"{self._path.name}.1"))
        finally:
            os.close(fd)

    def _still_named(self, fd: int) -> bool:
        """Whether nobody has rotated the file since we opened it."""
        return self._path.exists() and os.path.samestat(os.fstat(fd), self._path.stat())


def tell_engine(log: str | None, form: str | None, level: Level, message: str) -> None:
    """Add a line to the file that the engine named with `--log`, where it looks for errors."""
    if not log:
        return
    time = moment.to_text(moment.now())
    if form == "json":
        line = json.dumps({"level": level, "msg": message, "time": time})
    else:
        line = f"time={json.dumps(time)} level={level} msg={json.dumps(message)}"
    try:
        fd = open_or_create(log, flags=os.O_WRONLY | os.O_APPEND)
    except OSError:  # the exit code still tells
        return
    with os.fdopen(fd, "w") as file:
        file.write(line + "\n")
