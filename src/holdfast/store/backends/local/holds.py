"""Holds: marks that an operation is in progress, kept alive by the kernel.

A hold is a file on which its owner keeps a lock. When the owner dies, however it dies, the
lock is gone and the file is swept up. No clock is involved. Making a file and removing it takes as
long as writing a small checkpoint does, so a process keeps a few that it has let go of, unlocked,
for its next operations; to others they are as dead as any.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import threading
import weakref
from collections import deque
from contextlib import suppress
from pathlib import Path

from holdfast.model.errors import HoldfastError, from_os_error
from holdfast.model.files import PRIVATE, Access, create

_NAME = re.compile(r"(\.?)([0-9a-f]{16})-([0-9a-f]{16})")
_SPARE = 4  # files that are kept for later
_LATE = 32  # entries that a name may be behind: a new one costs as much as all else here

# A forked child must not keep its parent's holds alive, so it closes its copies of the files.
_open_files: weakref.WeakSet[_HoldFile] = weakref.WeakSet()


class _HoldFile:
    """A hold's file. It is locked when it is made, and while an operation is in progress."""

    def __init__(self, folder: Path | str, seq: int, access: Access = PRIVATE) -> None:
        self.nonce = secrets.token_bytes(8)
        self._folder = str(folder)  # as text: a Path costs as much as the calls below
        self._seq = seq
        self._path = self._named(seq)
        draft = f"{folder}/.{seq:016x}-{self.nonce.hex()}"
        self._fd = locked_file(draft, self._path, access)
        _open_files.add(self)

    def _named(self, seq: int) -> str:
        return f"{self._folder}/{seq:016x}-{self.nonce.hex()}"

    def lock(self, seq: int) -> bool:
        """Take it for another operation; False when somebody swept it up, or is just doing so."""
        if self._fd < 0:
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(self._fd).st_nlink:
                return False
            # With its old name it protects more than it need, never less.
            if not 0 <= seq - self._seq <= _LATE:
                wanted = self._named(seq)
                os.rename(self._path, wanted)
                self._path, self._seq = wanted, seq
        except OSError:
            return False
        return True

    def unlock(self) -> bool:
        """Let go of it; False when it is of no more use, as in a forked child."""
        if self._fd < 0:
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        except OSError:
            return False
        return True

    def remove(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                # Whoever may come later finds the file unlocked and removes it, so an error here
                # must not turn finished work into failed work.
                with suppress(OSError):
                    if os.fstat(fd).st_nlink:
                        os.unlink(self._path)
            finally:
                os.close(fd)

    def forget_in_child(self) -> None:
        # Closing a copy leaves the parent's lock in force; the file itself is the parent's.
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LocalHold:
    """One operation in progress on a local store."""

    refusal = None

    def __init__(self, file: _HoldFile, spare: deque[_HoldFile]) -> None:
        self.nonce = file.nonce
        self._spare = spare
        self._file: _HoldFile | None = file
        self._lock = threading.Lock()

    def release(self) -> None:
        with self._lock:
            file, self._file = self._file, None
        if file is None:
            return
        if len(self._spare) < _SPARE and file.unlock():
            self._spare.append(file)
        else:
            file.remove()


class Holds:
    """The holds of this process on one store. Thread-safe."""

    def __init__(self, folder: Path, access: Access = PRIVATE) -> None:
        self._folder = folder
        self._access = access
        self._spare: deque[_HoldFile] = deque()
        weakref.finalize(self, _remove_all, self._spare)

    def take(self, seq: int) -> LocalHold:
        """Begin an operation that needs nothing which was given up before entry `seq`."""
        while self._spare:
            try:
                file = self._spare.pop()
            except IndexError:
                break  # another thread was faster
            if file.lock(seq):
                return LocalHold(file, self._spare)
            file.remove()
        try:
            return LocalHold(_HoldFile(self._folder, seq, self._access), self._spare)
        except OSError as error:
            raise from_os_error(error, "beginning an operation on the store") from error

    def close(self) -> None:
        """Remove the files that are kept for later."""
        _remove_all(self._spare)


def _remove_all(files: deque[_HoldFile]) -> None:
    with suppress(IndexError):
        while True:
            files.pop().remove()


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


def locked_file(draft: Path | str, final: Path | str, access: Access = PRIVATE) -> int:
    """A new file that nobody ever sees unlocked: it gets its name after the lock."""
    while True:
        fd = create(draft, access, os.O_RDWR)
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
    for file in list(_open_files):
        file.forget_in_child()


os.register_at_fork(after_in_child=_forget_all_in_child)
