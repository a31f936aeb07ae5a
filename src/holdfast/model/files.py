"""Files and folders that other users cannot read, from the moment in which they are made.

Whatever Holdfast keeps may hold secrets: memory images do. So nothing that it makes is left to the
umask. Every store, cache, key, archive, state file, lock, socket and log is made by a function of
this module, 0600 or 0700; a mode that is set afterwards would leave a moment in which somebody can
open the file, and an open file stays open. A test compares the source with that.

A store that a group uses on purpose has a folder with the set-group-ID bit (`GROUP`). There files
are made 0600 first and widened before they get their names.
"""

from __future__ import annotations

import errno
import os
import shlex
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.model.disk import Disk, Sync

_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_GROUP_BITS, _OTHERS_BITS = 0o070, 0o007


class Access(NamedTuple):
    """The modes of the files and the folders of one place."""

    file: int
    folder: int


PRIVATE = Access(0o600, 0o700)
GROUP = Access(0o660, 0o2770)


def access_of(folder: Path) -> Access:
    """What the files in a folder are to be made with: for its group only where it has the
    set-group-ID bit and lets the group in."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return PRIVATE
    return GROUP if mode & stat.S_ISGID and mode & _GROUP_BITS else PRIVATE


def make_folder(folder: Path, access: Access = PRIVATE) -> bool:
    """Make a folder, and those above it that are missing; says whether it made it. One that exists
    stays as it is. Those above are for their user alone: `Path.mkdir(parents=True, mode=0o700)`
    would leave them to the umask. Raises OSError."""
    missing = [folder]
    for each in folder.parents:
        if each.exists():
            break
        missing.append(each)
    made = False
    for each in reversed(missing):
        try:
            each.mkdir(mode=0o700)
        except FileExistsError:
            if not each.is_dir():
                raise
            continue
        made = each == folder
    if made and access is not PRIVATE:
        folder.chmod(access.folder)
    return made


def create(path: Path | str, access: Access = PRIVATE, flags: int = os.O_WRONLY) -> int:
    """A descriptor of a new file. Raises FileExistsError, also for a link, and OSError."""
    fd = os.open(path, flags | _NEW, 0o600)
    if access is not PRIVATE:
        try:
            os.fchmod(fd, access.file)
        except BaseException:
            os.close(fd)
            raise
    return fd


def open_or_create(path: Path | str, access: Access = PRIVATE, flags: int = os.O_RDWR) -> int:
    """A descriptor of a file that is made when it is missing: a lock, or a log. Raises OSError."""
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(100):
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            with suppress(FileExistsError):  # somebody else made it just now
                return create(path, access, flags)
    return os.open(path, flags)  # it comes and goes: says what the matter is


def publish(
    path: Path,
    data: bytes,
    *,
    draft: Path | None = None,
    replace: bool = True,
    access: Access = PRIVATE,
    sync: tuple[Disk, Sync, Sync] | None = None,
) -> None:
    """Let a file appear whole under its name, or not at all. Raises OSError, and FileExistsError
    where it is not to `replace` what is there; then nothing is left of it.

    `draft` is the name that it has until then, in the same file system. With `sync` it is durable
    when this returns: a disk, and the names of the two syncs, of the bytes and of the name.
    """
    draft = draft or path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    fd = create(draft, access)
    try:
        with open(fd, "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            if sync is not None:
                sync[0].sync_file(file.fileno(), sync[1])
        if replace:
            draft.rename(path)
        else:
            os.link(draft, path)
            draft.unlink()
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    if sync is not None:
        sync[0].sync_directory(path.parent, sync[2])


def bind(listener: socket.socket, address: str) -> None:
    """Bind a Unix socket that only its user can connect to. Raises OSError."""
    # Linux makes the file with the mode of the socket itself, so there is no moment before it.
    with suppress(OSError):  # other kernels, such as gVisor's
        os.fchmod(listener.fileno(), 0o600)
    listener.bind(address)
    os.chmod(address, 0o600)


class Exposure(NamedTuple):
    """Something that more people can read than it is made for, and the command that mends it."""

    path: Path
    mode: int
    open_to: int  # those of its bits that let others in
    mends: str

    def __str__(self) -> str:
        who = "every user" if self.open_to & _OTHERS_BITS else "its group"
        return f"{who} of this machine can open {self.path} (mode {self.mode & 0o7777:04o})"


def exposure(path: Path, *, allowed: int = 0) -> Exposure | None:
    """What of a file or a folder is open to others than its user, beyond the bits that are
    `allowed`. None where a folder above it keeps them out, or where there is nothing."""
    try:
        mode = path.stat().st_mode
        open_to = mode & (_GROUP_BITS | _OTHERS_BITS) & ~allowed
        for above in path.absolute().parents:
            if not open_to:
                return None
            enter = above.stat().st_mode
            if not enter & stat.S_IXOTH:
                open_to &= ~_OTHERS_BITS
                if not enter & stat.S_IXGRP:
                    open_to &= ~_GROUP_BITS
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return None
        raise
    if not open_to:
        return None
    recursive = "-R " if path.is_dir() else ""
    who = "o" if allowed else "go"
    return Exposure(path, mode, open_to, f"chmod {recursive}{who}-rwx {shlex.quote(str(path))}")
