"""From a stream to an upper directory, which is emptied first.

The stream is checked as it is read, and every name is opened by its parent's descriptor without
following links, so nothing outside the directory can be reached whatever a stream says.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

import msgspec

from holdfast.model.errors import Corrupt
from holdfast.oci.layer.entry import Entry, read_entries

_COPY = 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPAQUE = "trusted.overlay.opaque"
_REDIRECT = "trusted.overlay.redirect"
_MODES = {"p": stat.S_IFIFO, "s": stat.S_IFSOCK, "c": stat.S_IFCHR, "b": stat.S_IFBLK}


def empty(upper: str) -> None:
    """Remove everything in an upper directory, and what marks the directory itself."""
    top = os.open(upper, _FOLDER)
    try:
        _empty(top)
        for name in os.listxattr(top):
            if name in (_OPAQUE, _REDIRECT):
                os.removexattr(top, name)
    finally:
        os.close(top)


def is_empty(upper: str) -> bool:
    """Whether a layer is clean: nothing was written to it."""
    with os.scandir(upper) as found:
        return next(found, None) is None


def extract(stream: BinaryIO, upper: str, below: str | None = None) -> int:
    """Empty an upper directory and fill it from a stream; gives the number of entries. `below` is
    where directories are seen that are to look as they did before."""
    empty(upper)
    top = os.open(upper, _FOLDER)
    folders = _Folders(top)
    count = 0
    try:
        for entry in read_entries(stream):
            if entry.b and below is not None:
                entry = _as_seen(entry, os.path.join(os.fsencode(below), entry.p))
            if not entry.p:
                folders.stamp(entry)
            else:
                _make(entry, folders, top, stream)
            count += 1
        folders.close()
        return count
    finally:
        folders.abandon()
        os.close(top)


def _as_seen(entry: Entry, path: bytes) -> Entry:
    """A directory with the attributes of one that is there; as it is, when there is none."""
    try:
        info = os.stat(path, follow_symlinks=False)
        if not stat.S_ISDIR(info.st_mode):
            return entry
        seen = {os.fsencode(k): os.getxattr(path, k) for k in os.listxattr(path)}
    except FileNotFoundError:
        return entry
    return msgspec.structs.replace(
        entry,
        m=stat.S_IMODE(info.st_mode),
        u=info.st_uid,
        g=info.st_gid,
        n=info.st_mtime_ns,
        x=seen,
    )


class _Folders:
    """The directories that are open just now, and what each is to look like when it is complete:
    making things in a directory changes its time, so that comes last."""

    def __init__(self, top: int) -> None:
        self._open: list[tuple[int, bytes, Entry | None]] = [(top, b"", None)]

    def stamp(self, entry: Entry) -> None:
        fd, path, _ = self._open[-1]
        self._open[-1] = (fd, path, entry)

    def parent(self, path: bytes) -> int:
        """The descriptor of the directory in which a path lies; leaves those that are complete."""
        above = path.rpartition(b"/")[0]
        while self._open[-1][1] != above:
            if len(self._open) == 1:
                raise Corrupt(f"{path!r} in a layer of files is in no directory of it")
            self._leave()
        return self._open[-1][0]

    def enter(self, fd: int, entry: Entry) -> None:
        self._open.append((fd, entry.p, entry))

    def close(self) -> None:
        while len(self._open) > 1:
            self._leave()
        fd, _, entry = self._open[0]
        if entry is not None:
            _dress(fd, entry)

    def abandon(self) -> None:
        while len(self._open) > 1:
            os.close(self._open.pop()[0])

    def _leave(self) -> None:
        fd, _, entry = self._open.pop()
        try:
            if entry is not None:
                _dress(fd, entry)
        finally:
            os.close(fd)


def _make(entry: Entry, folders: _Folders, top: int, stream: BinaryIO) -> None:
    parent = folders.parent(entry.p)
    name = entry.p.rpartition(b"/")[2]
    match entry.t:
        case "d":
            os.mkdir(name, 0o700, dir_fd=parent)
            folders.enter(os.open(name, _FOLDER, dir_fd=parent), entry)
        case "f":
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name, flags, 0o600, dir_fd=parent)
            try:
                _fill(fd, entry, stream)
                _dress(fd, entry)
            finally:
                os.close(fd)
        case "h":
            _link(entry, top, parent, name)
        case "w":
            os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)
        case "l":
            os.symlink(entry.l, name, dir_fd=parent)
            _dress_name(parent, name, entry)
        case _:
            os.mknod(name, _MODES[entry.t] | 0o600, os.makedev(*entry.d), dir_fd=parent)
            _dress_name(parent, name, entry)


def _fill(fd: int, entry: Entry, stream: BinaryIO) -> None:
    os.ftruncate(fd, entry.z)
    for offset, length in entry.e:
        end = offset + length
        while offset < end:
            data = stream.read(min(_COPY, end - offset))
            if not data:
                raise Corrupt("a layer of files ends too early")
            view = memoryview(data)
            while view:
                written = os.pwrite(fd, view, offset)
                offset += written
                view = view[written:]


def _link(entry: Entry, top: int, parent: int, name: bytes) -> None:
    """Link to an earlier entry, walking to it by descriptors."""
    *above, target = entry.l.split(b"/")
    held: list[int] = []
    try:
        at = top
        for part in above:
            at = os.open(part, _FOLDER, dir_fd=at)
            held.append(at)
        os.link(target, name, src_dir_fd=at, dst_dir_fd=parent, follow_symlinks=False)
    finally:
        for fd in held:
            os.close(fd)


def _dress(fd: int, entry: Entry) -> None:
    """Owner first: changing it takes capabilities and set-id bits away. Times last."""
    os.fchown(fd, entry.u, entry.g)
    os.fchmod(fd, entry.m)
    for name, value in _attributes(entry).items():
        os.setxattr(fd, name, value)
    os.utime(fd, ns=(entry.n, entry.n))


def _dress_name(parent: int, name: bytes, entry: Entry) -> None:
    """The same for what cannot be opened without consequences."""
    os.chown(name, entry.u, entry.g, dir_fd=parent, follow_symlinks=False)
    if entry.t != "l":
        os.chmod(name, entry.m, dir_fd=parent)
    path = b"/proc/self/fd/%d/%b" % (parent, name)
    for key, value in _attributes(entry).items():
        os.setxattr(path, key, value, follow_symlinks=False)
    os.utime(name, ns=(entry.n, entry.n), dir_fd=parent, follow_symlinks=False)


def _attributes(entry: Entry) -> dict[bytes, bytes]:
    wanted = {k: v for k, v in entry.x.items() if not k.startswith(b"trusted.overlay.")}
    if entry.o:
        wanted[_OPAQUE.encode()] = b"y"
    if entry.r is not None and entry.t == "d":
        wanted[_REDIRECT.encode()] = entry.r
    return wanted


def _empty(folder: int) -> None:
    for name in os.listdir(folder):
        info = os.lstat(name, dir_fd=folder)
        if stat.S_ISDIR(info.st_mode):
            inner = os.open(name, _FOLDER, dir_fd=folder)
            try:
                _empty(inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def set_aside(upper: str, aside: str) -> None:
    """Move what a layer holds out of the way, to a new folder in the same file system. Only when
    the folder has its name `aside` has everything moved."""
    moving = _moving(aside)
    os.mkdir(moving, 0o700)
    for name in os.listdir(upper):
        os.rename(os.path.join(upper, name), os.path.join(moving, name))
    os.rename(moving, aside)


def put_back(upper: str, aside: str | None) -> None:
    """Give a layer back what was set aside and nothing else. May be called twice, and after a
    `set_aside` or a `put_back` that was cut off."""
    if aside is None or os.path.isdir(aside):
        empty(upper)  # whatever is in it came later
    if aside is None:
        return
    moving = _moving(aside)
    if os.path.isdir(aside):
        os.rename(aside, moving)  # from here on, what is in the layer is what was moved back
    if os.path.isdir(moving):
        for name in os.listdir(moving):
            os.rename(os.path.join(moving, name), os.path.join(upper, name))
        os.rmdir(moving)


def drop_aside(aside: str) -> None:
    """Remove what was set aside and is not needed any more."""
    empty(aside)
    os.rmdir(aside)


def _moving(aside: str) -> str:
    return f"{aside}.moving"
