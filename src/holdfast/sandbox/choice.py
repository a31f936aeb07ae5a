"""Choosing an engine, and a folder on this machine that is one server's own."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.model.errors import Unsupported, from_os_error
from holdfast.model.files import make_folder
from holdfast.runtime.trial import clear
from holdfast.sandbox import limits
from holdfast.sandbox.contract import Engine
from holdfast.sandbox.engines.gvisor import GvisorEngine
from holdfast.sandbox.engines.process import ProcessEngine
from holdfast.sandbox.engines.runc import RuncEngine

ENGINES: dict[str, Callable[[Mapping[str, str]], Engine]] = {
    "gvisor": GvisorEngine,
    "runc": RuncEngine,
    "process": ProcessEngine,
}


def choose(name: str, environ: Mapping[str, str] = os.environ) -> Engine:
    """The engine of that name; `auto` is the best there is. Raises Unsupported."""
    if name != "auto":
        made = ENGINES.get(name)
        if made is None:
            raise Unsupported(
                f"the engine {name!r} is not there yet", hint=f"auto or one of {', '.join(ENGINES)}"
            )
        return made(environ)
    troubles = []
    for made in ENGINES.values():
        try:
            return made(environ)
        except Unsupported as trouble:
            troubles.append(str(trouble))
    raise Unsupported(f"no engine works here: {'; '.join(troubles)}", hint="make setup, as root")


class Ground:
    """A folder for the boxes of one server. Held by a lock, so that the next server can tell what
    a killed one left and clear it away."""

    def __init__(self, runs: Path) -> None:
        try:
            make_folder(runs)
            self.folder = runs / f"{os.getpid()}-{secrets.token_hex(4)}"
            self.folder.mkdir(mode=0o700)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise from_os_error(error, "making a place for sandboxes") from error

    def release(self) -> None:
        clear(self.folder)
        os.close(self._lock)


def sweep(runs: Path) -> list[Path]:
    """Clear away what servers left that were killed; what they were."""
    swept = []
    for folder in runs.iterdir() if runs.is_dir() else ():
        try:
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # being made, or being removed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for box in (folder / "boxes").glob("*"):
                # Whoever was frozen when its server was killed waits for ever.
                groups = limits.left_by(box.name)
                groups.kill()
                groups.remove()
            clear(folder)
            swept.append(folder)
        except BlockingIOError:
            continue  # its server lives
        finally:
            os.close(lock)
    return swept
