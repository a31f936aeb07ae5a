"""Signs of life in a directory: a locked file whose bytes change.

The lock tells at once that an owner died, however it died; bytes that stay the same tell, after a
while, that it was stopped.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import weakref
from contextlib import suppress
from pathlib import Path

from holdfast.model.errors import LeaseLost, from_os_error
from holdfast.model.files import PRIVATE, Access
from holdfast.store.backends.contract import Pulse
from holdfast.store.backends.files import open_file
from holdfast.store.backends.local.holds import locked_file

NONCE_SIZE = 16

# A forked child must not keep its parent's lease alive.
_beating: weakref.WeakSet[LocalBeat] = weakref.WeakSet()


class LocalBeat:
    """The sign of life of an owner in this process."""

    def __init__(self, folder: Path, name: bytes, access: Access = PRIVATE) -> None:
        self._path = folder / name.hex()
        self._lock = threading.Lock()
        try:
            self._fd = locked_file(folder / f".{name.hex()}", self._path, access)
        except OSError as error:
            raise from_os_error(error, "taking a lease") from error
        _beating.add(self)
        self.renew()

    def renew(self) -> None:
        with self._lock:
            if self._fd < 0:
                raise LeaseLost("this lease has ended")
            try:
                # Nothing is synced: after a power loss nobody is alive.
                os.pwrite(self._fd, secrets.token_bytes(NONCE_SIZE), 0)
            except OSError as error:
                raise from_os_error(error, "renewing a lease") from error

    def stop(self) -> None:
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                with suppress(OSError):  # whoever looks finds it unlocked, and removes it
                    self._path.unlink()
            finally:
                os.close(fd)

    def _forget_in_child(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def pulse(path: Path) -> Pulse | None:
    """What a sign of life says; that of the dead is removed."""
    try:
        fd = open_file(path)
    except FileNotFoundError:
        return None
    try:
        # Shared: two who look at the same moment do not take each other for the owner.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with suppress(PermissionError):
            path.unlink(missing_ok=True)
        return None
    except BlockingIOError:
        return Pulse(os.pread(fd, NONCE_SIZE, 0), vouched=True)
    finally:
        os.close(fd)


def _forget_all_in_child() -> None:
    for beat in list(_beating):
        beat._forget_in_child()


os.register_at_fork(after_in_child=_forget_all_in_child)
