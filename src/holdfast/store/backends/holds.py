"""Holds: marks that an operation is in progress, kept alive by the kernel.

A hold is a file on which its owner keeps a lock. When the owner dies, however it dies, the
lock is gone and the file is swept up. No clock is involved.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import threading
import weakref
from contextlib import suppress
from pathlib import Path

from holdfast.model.errors import HoldfastError, from_os_error

_NAME = re.compile(r"(\.?)([0-9a-f]{16})-([0-9a-f]{16})")

# A forked child must not keep its parent's holds alive, so it closes its copies of the files.
_open_holds: weakref.WeakSet[LocalHold] = weakref.WeakSet()


class LocalHold:
    """One operation in progress on a local store."""

    refusal = None

    def __init__(self, folder: Path, seq: int) -> None:
        self.nonce = secrets.token_bytes(8)
        name = f"{seq:016x}-{self.nonce.hex()}"
        self._path = f"{folder}/{name}"  # as text: a Path costs as much as the calls below
        self._lock = threading.Lock()
        try:
            self._fd = locked_file(f"{folder}/.{name}", self._path)
        except OSError as error:
            raise from_os_error(error, "beginning an operation on the store") from error
        _open_holds.add(self)

    def release(self) -> None:
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                # Whoever may come later finds the file unlocked and removes it, so an error here
                # must not turn finished work into failed work.
                with suppress(OSError):
                    os.unlink(self._path)
            finally:
                os.close(fd)

    def _forget_in_child(self) -> None:
        # Closing a copy leaves the parent's lock in force; the file itself is the parent's.
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class ReaderHold:
    """Stands in where a store may be read but not written: a hold that holds nothing."""

    nonce = bytes(8)

    def __init__(self, refusal: HoldfastError) -> None:
        self.refusal = refusal

    def release(self) -> None:
        """Nothing was taken."""


def living(folder: Path) -> list[tuple[int, bytes]]:
    """Number and nonce of each hold whose owner lives; the others are removed."""
    alive = []
    with os.scandir(folder) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            # What is no file is nobody's hold, and not ours to remove.
            if match and entry.is_file() and _is_locked(folder / entry.name) and not match[1]:
                alive.append((int(match[2], 16), bytes.fromhex(match[3])))
    return alive


def locked_file(draft: Path | str, final: Path | str) -> int:
    """A new file that nobody ever sees unlocked: it gets its name after the lock."""
    while True:
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.rename(draft, final)
            return fd
        except FileNotFoundError:
            os.close(fd)  # swept up as a dead one's before it was locked: once more
        except BaseException:
            os.close(fd)
            raise


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False  # released between listing and looking
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def _forget_all_in_child() -> None:
    for hold in list(_open_holds):
        hold._forget_in_child()


os.register_at_fork(after_in_child=_forget_all_in_child)
