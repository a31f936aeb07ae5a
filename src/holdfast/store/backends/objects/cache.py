"""The cache: a bucket's objects as files of this machine, in the same layout, within a limit.

It is never trusted and never needed: whoever finds bytes in it that do not check drops the file
and asks the bucket. What is used least goes first.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

from holdfast.model.errors import from_os_error
from holdfast.model.files import create, make_folder
from holdfast.store.backends.files import write_all

LIMIT = 10 * 1024**3
_FOLDERS = ("log", "folds", "packs", "tails", "tmp")
_TOUCH = 60.0  # seconds; a file that was used in the last minute is not marked again
_WITHOUT = 1024**3  # bytes that a process keeps for itself where there can be no cache
_ABANDONED = 24 * 3600.0  # seconds after which a file in tmp is nobody's


class Cache:
    """Files of one store. Several processes may use it; thread-safe."""

    def __init__(self, root: Path, limit: int = LIMIT) -> None:
        self.root = root
        self._limit = limit
        self._lock = threading.Lock()
        try:
            self._make()
        except OSError:
            # Where nothing can be kept one still reads and writes, and keeps it while it runs.
            self.root, self._limit = _temporary(self), min(limit, _WITHOUT)
            self._make()
        self._count = self._shrink()

    def _make(self) -> None:
        self._make_folders()
        probe = self.spool()
        os.close(create(probe))
        probe.unlink()

    def _make_folders(self) -> None:
        for name in _FOLDERS:
            make_folder(self.root / name)

    def path(self, key: str) -> Path | None:
        """The file of an object, if it is here; it counts as used now."""
        path = self.root / key
        try:
            if time.time() - path.stat().st_mtime > _TOUCH:
                os.utime(path)
        except OSError:
            return None
        return path

    def read(self, key: str) -> bytes | None:
        path = self.path(key)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError:
            return None  # another process made room

    def spool(self) -> Path:
        """A name for a file that is still being written, in a folder that is there: somebody may
        have cleared the cache meanwhile."""
        folder = self.root / "tmp"
        if not folder.is_dir():
            with suppress(OSError):  # whoever writes there will say so
                self._make_folders()
        return folder / secrets.token_hex(12)

    def adopt(self, draft: Path, key: str) -> None:
        """Let a complete file be an object's copy; one that was taken away meanwhile is none."""
        try:
            size = draft.stat().st_size
            draft.replace(self.root / key)
        except FileNotFoundError:
            return
        self._grow(size)

    def add(self, key: str, data: bytes) -> None:
        """Keep an object's bytes if there is room; a disk that is full is no reason to fail."""
        draft = self.spool()
        try:
            with open(create(draft), "wb", buffering=0) as file:
                write_all(file.fileno(), data, 0)
            self.adopt(draft, key)
        except OSError:
            draft.unlink(missing_ok=True)

    def drop(self, key: str) -> bool:
        """Forget an object; whether there was something to forget."""
        try:
            (self.root / key).unlink()
        except OSError:
            return False
        return True

    def _grow(self, size: int) -> None:
        with self._lock:
            self._count += size
            if self._count > self._limit:
                self._count = self._shrink()

    def _shrink(self) -> int:
        """Remove what was not used for longest until the limit is kept; the bytes that stay."""
        files = []
        for path in self.root.glob("*/*"):
            with suppress(OSError):
                about = path.stat()
                if path.parent.name != "tmp":
                    files.append((about.st_mtime, about.st_size, path))
                elif time.time() - about.st_mtime > _ABANDONED:
                    path.unlink()
        total = sum(size for _, size, _ in files)
        # A little more than needed, so that it is not done for each file that comes.
        wanted = self._limit if total <= self._limit else self._limit * 9 // 10
        for _, size, path in sorted(files):
            if total <= wanted:
                break
            with suppress(OSError):
                path.unlink()
            total -= size
        return total


def _temporary(owner: object) -> Path:
    """A folder that goes with its owner."""
    try:
        folder = tempfile.mkdtemp(prefix="holdfast-cache-")
    except OSError as error:
        raise from_os_error(error, "making the cache of an object store") from error
    weakref.finalize(owner, _remove, folder, os.getpid())
    return Path(folder)


def _remove(folder: str, process: int) -> None:
    if process == os.getpid():  # in a forked child it is the parent's
        shutil.rmtree(folder, ignore_errors=True)
