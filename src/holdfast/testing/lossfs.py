"""A file system that forgets: when the power is cut, what was not synced may be gone.

It keeps only to what POSIX promises. A file's bytes are durable after fsync or fdatasync of the
file; a name (created, linked, renamed, removed, also a directory's) after fsync of the directory it
stands in. Until then the change may survive the cut or not, in any order, and `Loss` says which.

Control goes by extended attributes of its root, see `holdfast.testing.power`.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import random
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar, cast

import mfusepy as fuse  # type: ignore[import-untyped]

PAGE = 4096
SECTOR = 512  # what a disk writes whole or not at all
CONTROL = "user.lossfs."
_EXCHANGE = 2  # of renameat2

# What a cut leaves: `nothing` unsynced; everything as after a kill (`all`); names without their
# bytes; removals but not what was added; or a random half of each.
Loss = Literal["nothing", "all", "names", "removals", "scatter"]

Operation = TypeVar("Operation", bound=Callable[..., Any])


class File:
    """Bytes as they are, and as they are on the disk."""

    def __init__(self, mode: int) -> None:
        self.mode = stat.S_IFREG | mode
        self.data: bytes | bytearray = b""  # bytes when others share them
        self.durable = b""
        self.links = 0
        self.changed = time.time_ns()

    def changeable(self) -> bytearray:
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data)
        return self.data

    def frozen(self) -> bytes:
        if not isinstance(self.data, bytes):
            self.data = bytes(self.data)
        return self.data

    def sync(self) -> None:
        self.durable = self.frozen()

    def lose(self, loss: Loss, chance: random.Random) -> None:
        if loss == "scatter" and self.data != self.durable:
            self.data = _scattered(self.durable, self.frozen(), chance)
        elif loss != "all":
            self.data = self.durable
        self.sync()


class Folder:
    """Names as they are, and as they are on the disk."""

    def __init__(self, mode: int) -> None:
        self.mode = stat.S_IFDIR | mode
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.changed = time.time_ns()

    def sync(self) -> None:
        self.durable = dict(self.names)

    def lose(self, loss: Loss, chance: random.Random) -> None:
        kept: dict[str, Node] = {}
        for name in sorted({*self.names, *self.durable}):
            now, then = self.names.get(name), self.durable.get(name)
            survives = now is then or loss in ("all", "names")
            survives = survives or (loss == "removals" and now is None)
            survives = survives or (loss == "scatter" and chance.random() < 0.5)
            if (left := now if survives else then) is not None:
                kept[name] = left
        self.names = kept
        self.sync()


Node = File | Folder


def _scattered(before: bytes, after: bytes, chance: random.Random) -> bytearray:
    """Some sectors of the new bytes over the old ones; the length is one or the other."""
    size = chance.choice((len(before), len(after)))
    result = bytearray(before.ljust(size, b"\0")[:size])
    for start in range(0, size, SECTOR):
        if chance.random() < 0.5:
            piece = after[start : min(start + SECTOR, size)]
            result[start : start + len(piece)] = piece
    return result


def _powered(method: Operation) -> Operation:
    """An operation: none works while the power is off, and only one runs at a time."""

    @functools.wraps(method)
    def run(self: LossFS, *args: Any, **kwargs: Any) -> Any:
        with self.mutex:
            if self.off:
                raise fuse.FuseOSError(errno.EIO)
            return method(self, *args, **kwargs)

    return cast(Operation, run)


def _changing(method: Operation) -> Operation:
    """An operation that changes something: it counts, and the power may go just before it."""

    @functools.wraps(method)
    def run(self: LossFS, *args: Any, **kwargs: Any) -> Any:
        self.operations += 1
        if self.recording:
            self.keep(str(self.operations))
        if self.operations == self.cut_at:
            self.off = True
            raise fuse.FuseOSError(errno.EIO)
        return method(self, *args, **kwargs)

    return cast(Operation, _powered(run))


class LossFS(fuse.Operations):  # type: ignore[misc]  # the library has no types
    """The operations of the file system."""

    use_ns = True

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.off = False
        self.operations = 0
        self.cut_at = 0
        self.recording = False
        self.rotting = ""  # files of this name lose a bit when their folder is renamed
        self._root = _durable_folder()
        self._saved: dict[str, Folder] = {}
        self._kept: dict[str, Folder] = {}
        self._handles: dict[int, File] = {}
        self._next_handle = 0

    # -- control

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        words = value.decode().split()
        with self.mutex:
            match name.removeprefix(CONTROL):
                case "save":
                    self._saved[words[0]] = _copy(self._root)
                case "load":
                    self._restart(_copy(self._saved[words[0]]) if words else _durable_folder())
                case "record":
                    self._kept.clear()
                    self.recording = True
                case "keep":
                    self.keep(words[0])
                case "return":
                    self._restart(_replica(self._kept[words[0]]))
                case "resume":
                    self.off = False
                    self.cut_at = 0
                case "rot":
                    self.rotting = words[0] if words else ""
                case "cut_at":
                    self.cut_at = self.operations + int(words[0])
                case "cut":
                    chance = random.Random(words[1])
                    for node in list(_walk(self._root)):
                        node.lose(words[0], chance)  # type: ignore[arg-type]
                    self._restart(_copy(self._root))
                case _:
                    raise fuse.FuseOSError(errno.ENOTSUP)
        return 0

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        if name == f"{CONTROL}operations":
            return str(self.operations).encode()
        if name == f"{CONTROL}digest":
            with self.mutex:
                return _digest(self._root).hex().encode()
        raise fuse.FuseOSError(errno.ENODATA)

    def _restart(self, root: Folder) -> None:
        self._root = root
        self._handles.clear()
        self.off = self.recording = False
        self.operations = self.cut_at = 0

    def keep(self, name: str) -> None:
        """Remember everything as it is now, and what of it is not durable."""
        self._kept[name] = _replica(self._root)

    # -- names

    @_powered
    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        node = self._file(path, fh) if fh in self._handles else self._find(path)
        shared = {
            "st_mode": node.mode,
            "st_mtime": node.changed,
            "st_ctime": node.changed,
            "st_uid": os.getuid(),
            "st_gid": os.getgid(),
        }
        if isinstance(node, Folder):
            return {**shared, "st_nlink": 2}
        blocks = -(-len(node.data) // 512)
        return {**shared, "st_nlink": node.links, "st_size": len(node.data), "st_blocks": blocks}

    @_powered
    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *self._folder(path).names]

    @_changing
    def mkdir(self, path: str, mode: int) -> int:
        self._add(path, Folder(mode & 0o7777))
        return 0

    @_changing
    def rmdir(self, path: str) -> int:
        if self._folder(path).names:
            raise fuse.FuseOSError(errno.ENOTEMPTY)
        self._remove(path)
        return 0

    @_changing
    def unlink(self, path: str) -> int:
        self._remove(path)
        return 0

    @_changing
    def link(self, target: str, source: str) -> int:
        self._add(target, self._find(source))
        return 0

    @_changing
    def rename(self, old: str, new: str) -> int:
        node = self._find(old)
        self._remove(old)
        folder, name = self._parent(new)
        if name in folder.names:
            self._remove(new)
        self._add(new, node)
        if self.rotting and isinstance(node, Folder):
            _rot(node, self.rotting)
        return 0

    @_changing
    def exchange(self, one: str, other: str) -> int:
        nodes = self._find(one), self._find(other)
        for path, node in zip((other, one), nodes, strict=True):
            folder, name = self._parent(path)
            folder.names[name] = node
        return 0

    @_changing
    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._opened(self._add(path, File(mode & 0o7777)))

    # -- bytes

    @_powered
    def open(self, path: str, flags: int) -> int:
        node = self._find(path)
        if isinstance(node, Folder):
            raise fuse.FuseOSError(errno.EISDIR)
        return self._opened(node)

    @_powered
    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._file(path, fh).data[offset : offset + size])

    @_changing
    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        file = self._file(path, fh)
        bytes_now = file.changeable()
        bytes_now.extend(bytes(max(0, offset - len(bytes_now))))
        bytes_now[offset : offset + len(data)] = data
        file.changed = time.time_ns()
        return len(data)

    @_changing
    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        file = self._file(path, fh)
        bytes_now = file.changeable()
        del bytes_now[length:]
        bytes_now.extend(bytes(length - len(bytes_now)))
        return 0

    @_changing
    def fsync(self, path: str | None, datasync: int, fh: int) -> int:
        self._file(path, fh).sync()
        return 0

    @_changing
    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self._folder(path).sync()
        return 0

    def flush(self, path: str | None, fh: int) -> int:
        return 0

    def release(self, path: str | None, fh: int) -> int:
        self._handles.pop(fh, None)
        return 0

    # -- what is not under test

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": PAGE, "f_frsize": PAGE, "f_blocks": 1 << 20, "f_bavail": 1 << 19}

    def chmod(self, path: str, mode: int) -> int:
        node = self._find(path)
        node.mode = stat.S_IFMT(node.mode) | mode & 0o7777
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        return 0

    # -- inside

    def _opened(self, file: Node) -> int:
        assert isinstance(file, File)
        self._next_handle += 1
        self._handles[self._next_handle] = file
        return self._next_handle

    def _file(self, path: str | None, fh: int | None) -> File:
        if fh in self._handles:
            return self._handles[fh]
        if path is None:
            raise fuse.FuseOSError(errno.EIO)  # a handle from before the power was cut
        node = self._find(path)
        if isinstance(node, Folder):
            raise fuse.FuseOSError(errno.EISDIR)
        return node

    def _find(self, path: str) -> Node:
        node: Node = self._root
        for name in filter(None, path.split("/")):
            found = node.names.get(name) if isinstance(node, Folder) else None
            if found is None:
                raise fuse.FuseOSError(errno.ENOENT)
            node = found
        return node

    def _folder(self, path: str) -> Folder:
        node = self._find(path)
        if not isinstance(node, Folder):
            raise fuse.FuseOSError(errno.ENOTDIR)
        return node

    def _parent(self, path: str) -> tuple[Folder, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name

    def _add(self, path: str, node: Node) -> Node:
        folder, name = self._parent(path)
        if name in folder.names:
            raise fuse.FuseOSError(errno.EEXIST)
        folder.names[name] = node
        if isinstance(node, File):
            node.links += 1
        return node

    def _remove(self, path: str) -> None:
        folder, name = self._parent(path)
        node = self._find(path)
        del folder.names[name]
        if isinstance(node, File):
            node.links -= 1


def _durable_folder() -> Folder:
    return Folder(0o755)


def _walk(folder: Folder) -> Iterator[Node]:
    """Every node that has a name now or on the disk; parents last, since losing cuts them loose."""
    for node in {id(n): n for n in (*folder.names.values(), *folder.durable.values())}.values():
        if isinstance(node, Folder):
            yield from _walk(node)
        else:
            yield node
    yield folder


def _copy(folder: Folder, copies: dict[int, File] | None = None) -> Folder:
    """A tree like this one, with everything in it durable; hard links stay links."""
    copies = {} if copies is None else copies
    made = Folder(stat.S_IMODE(folder.mode))
    for name, node in folder.names.items():
        if isinstance(node, Folder):
            made.names[name] = _copy(node, copies)
            continue
        if id(node) not in copies:
            copies[id(node)] = file = File(stat.S_IMODE(node.mode))
            file.data = node.frozen()
            file.changed = node.changed
            file.sync()
        copies[id(node)].links += 1
        made.names[name] = copies[id(node)]
    made.sync()
    return made


def _replica(root: Folder) -> Folder:
    """A tree like this one, with what is not durable in it; hard links stay links."""
    copies: dict[int, Node] = {}

    def copied(node: Node) -> Node:
        if (made := copies.get(id(node))) is None:
            if isinstance(node, Folder):
                made = copies[id(node)] = Folder(stat.S_IMODE(node.mode))
                made.names = {name: copied(child) for name, child in node.names.items()}
                made.durable = {name: copied(child) for name, child in node.durable.items()}
            else:
                made = copies[id(node)] = File(stat.S_IMODE(node.mode))
                made.data, made.durable, made.links = node.frozen(), node.durable, node.links
            made.changed = node.changed
        return made

    found = copied(root)
    assert isinstance(found, Folder)
    return found


def _rot(folder: Folder, name: str) -> None:
    """Let the last bit of every file of that name be another one."""
    for each, node in folder.names.items():
        if isinstance(node, Folder):
            _rot(node, name)
        elif each == name and node.data:
            node.changeable()[-1] ^= 1
            node.sync()


def _digest(node: Node) -> bytes:
    """The same for trees with the same names, links and bytes."""
    if isinstance(node, File):
        return hashlib.sha256(node.links.to_bytes(4, "big") + node.frozen()).digest()
    listed = hashlib.sha256()
    for name, child in sorted(node.names.items()):
        listed.update(f"{name}\0{stat.S_IFMT(child.mode)}\0".encode() + _digest(child))
    return listed.digest()


class _Served(fuse.FUSE):  # type: ignore[misc]  # the library has no types
    """The library's rename forgets its flags, and an exchange would lose one of the two."""

    def rename_fuse_3(self, old: bytes, new: bytes, flags: int) -> int:
        paths = os.fsdecode(old), os.fsdecode(new)
        if flags == _EXCHANGE:
            return cast(int, self.operations.exchange(*paths))
        if flags:
            raise fuse.FuseOSError(errno.EINVAL)
        return cast(int, self.operations.rename(*paths))


def main(mountpoint: str, subtype: str = "lossfs") -> None:
    """Serve until it is unmounted. Nothing is cached by the kernel across a cut."""
    _Served(
        LossFS(),
        mountpoint,
        foreground=True,
        subtype=subtype,
        hard_remove=True,
        attr_timeout=0,
        entry_timeout=0,
        negative_timeout=0,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
