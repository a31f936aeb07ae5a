"""The writable layer of a sandbox as one stream, and back: exactly, times to the nanosecond.

gVisor compares sizes and times of open files when it restores, and an overlay's deletions are
devices and attributes; an ordinary copy of files would lose both.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Protocol

from holdfast.model.errors import BadInput, Corrupt, from_os_error

XATTR = "SCHILY.xattr."
# What says that a folder hides the one below; the overlay's other notes are about this machine.
OPAQUE = "trusted.overlay.opaque"
_KEPT = (OPAQUE, "security.capability")
_BLOCK = 1 << 20
# Python's tarfile, up to 3.13, loses its way behind a sparse member with more data than that.
_MOST_SPARSE = 8 << 30
_READINGS = 10  # of a folder that does not stop changing
_HOLE = bytes(4096)
# Sees to it that an entry can be made at a place; False where nothing is to be made then.
MakeRoom = Callable[[tarfile.TarInfo, Path], bool]


def _there_is(info: tarfile.TarInfo, path: Path) -> bool:
    return True


def pack(upper: Path, *, at_rest: bool = True) -> Iterator[bytes]:
    """The layer as a tar, piece by piece; holes of files are not read. Raises HoldfastError.

    Where programs go on meanwhile (`at_rest` is False), what vanishes is left out, a folder that
    changes is read again, and a file that becomes shorter ends in zeros.
    """
    try:
        yield from _pack(upper, at_rest)
    except OSError as error:
        raise from_os_error(error, "reading a sandbox's files") from error


@dataclass(frozen=True, slots=True)
class _Found:
    """Something in the layer. `path` leads there by way of its folder's descriptor, so that no link
    that a program puts in the place of a folder is ever followed."""

    name: str
    path: str
    status: os.stat_result


def _pack(upper: Path, at_rest: bool) -> Iterator[bytes]:
    seen: dict[tuple[int, int], str] = {}
    for found in _walk(upper, at_rest):
        try:
            entry = _Entry.open(found, seen)
        except FileNotFoundError:
            if at_rest:
                raise
            continue
        if entry is None:
            continue
        with entry:
            yield from entry.blocks(at_rest)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _walk(top: Path, at_rest: bool) -> Iterator[_Found]:
    """Everything below, folders before what is in them, in a stable order."""
    yield _Found(".", str(top), os.lstat(top))
    pending = ["."]
    with _opened(top, os.O_RDONLY | os.O_DIRECTORY) as root:
        while pending:
            folder = pending.pop()
            try:
                inner = _folder(root, folder)
            except (FileNotFoundError, NotADirectoryError):
                if at_rest:
                    raise
                continue
            with inner as fd:
                for found in _listed(fd, folder, at_rest):
                    yield found
                    if stat.S_ISDIR(found.status.st_mode):
                        pending.append(found.name)


def _listed(fd: int, folder: str, at_rest: bool) -> Iterator[_Found]:
    """What is in a folder. One that changes is read again, a few times, for what is new in it: of a
    file that is given another name meanwhile, at least one of the two is found."""
    known: set[str] = set()
    for _ in range(1 if at_rest else _READINGS):
        before = os.fstat(fd)
        for name in sorted(set(os.listdir(fd)) - known):
            known.add(name)
            path = f"/proc/self/fd/{fd}/{name}"
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                if at_rest:
                    raise
                continue
            yield _Found(name if folder == "." else f"{folder}/{name}", path, status)
        after = os.fstat(fd)
        if (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns):
            return


def _folder(root: int, name: str) -> AbstractContextManager[int]:
    """A folder of the layer, through real ones only. Raises OSError."""
    fd = os.dup(root)
    try:
        for part in name.split("/"):
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
    except BaseException:
        os.close(fd)
        raise
    return _closing(fd)


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _opened(path: str | Path, flags: int) -> AbstractContextManager[int]:
    return _closing(os.open(path, flags | os.O_CLOEXEC))


class _Entry:
    """One member of the archive."""

    def __init__(self, info: tarfile.TarInfo, path: str, file: BinaryIO | None) -> None:
        self._info = info
        self._path = path
        self._file = file

    @classmethod
    def open(cls, found: _Found, seen: dict[tuple[int, int], str]) -> _Entry | None:
        """None for what no checkpoint has. Raises OSError."""
        file, status = None, found.status
        if stat.S_ISREG(status.st_mode):
            # Of what it is when it is opened: a program may have put something else there.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                file = os.fdopen(os.open(found.path, flags), "rb", buffering=0)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO):
                    raise FileNotFoundError(errno.ENOENT, "it is another now") from None
                raise
            status = os.fstat(file.fileno())
        try:
            info = _header(found.name, found.path, status, seen)
        except BaseException:
            if file is not None:
                file.close()
            raise
        if file is not None and (info is None or not info.isreg()):
            file.close()
            file = None
        return None if info is None else cls(info, found.path, file)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def blocks(self, at_rest: bool) -> Iterator[bytes]:
        info, file = self._info, self._file
        if file is None or not info.size:
            yield _tar(info)
            return
        pieces, table = _data(file.fileno(), info.size), b""
        held = sum(size for _, size in pieces)
        if held < min(info.size - _BLOCK, _MOST_SPARSE):
            table = _sparse(info, pieces)
        else:
            pieces = [(0, info.size)]
        yield _tar(info) + table
        for offset, size in pieces:
            yield from self._content(file, offset, size, at_rest)
        if info.size % tarfile.BLOCKSIZE:
            yield bytes(tarfile.BLOCKSIZE - info.size % tarfile.BLOCKSIZE)

    def _content(self, file: BinaryIO, offset: int, size: int, at_rest: bool) -> Iterator[bytes]:
        file.seek(offset)
        left = size
        while left:
            block = file.read(min(left, _BLOCK))
            if not block:
                if at_rest:
                    raise BadInput(f"{self._info.name} became shorter while it was being saved")
                block = bytes(min(left, _BLOCK))
            left -= len(block)
            yield block


def _data(fd: int, size: int) -> list[tuple[int, int]]:
    """Where a file has data: what lies between is a hole, which reads as zeros and takes as long as
    if it were none."""
    found: list[tuple[int, int]] = []
    at = 0
    while at < size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole to the end
                break
            return [(0, size)]  # this file system does not say
        if begin >= size:
            break
        at = min(os.lseek(fd, begin, os.SEEK_HOLE), size)
        if at <= begin:  # it became shorter
            break
        found.append((begin, at - begin))
    return found


def _sparse(info: tarfile.TarInfo, pieces: list[tuple[int, int]]) -> bytes:
    """Make a member one of GNU's sparse ones, version 1.0, and give the table that its data begins
    with. Every tar that knows PAX reads those, and so does every version of this package."""
    pieces = [*pieces, (info.size, 0)] if not pieces or sum(pieces[-1]) < info.size else pieces
    numbers = [len(pieces), *(number for piece in pieces for number in piece)]
    table = "".join(f"{number}\n" for number in numbers).encode()
    table += bytes(-len(table) % tarfile.BLOCKSIZE)
    info.pax_headers = {
        **info.pax_headers,
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": info.name,
        "GNU.sparse.realsize": str(info.size),
    }
    info.size = len(table) + sum(size for _, size in pieces)
    return table


def _tar(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _header(
    name: str, path: str, status: os.stat_result, seen: dict[tuple[int, int], str]
) -> tarfile.TarInfo | None:
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(status.st_mode)
    info.uid, info.gid = status.st_uid, status.st_gid
    info.pax_headers = {"mtime": _decimal(status.st_mtime_ns)}
    for key in os.listxattr(path, follow_symlinks=False):
        if key in _KEPT or key.startswith("user."):
            try:
                value = os.getxattr(path, key, follow_symlinks=False)
            except OSError as error:
                if error.errno == errno.ENODATA:  # it has just been taken away
                    continue
                raise
            info.pax_headers[XATTR + key] = value.decode("utf-8", "surrogateescape")
    mode = status.st_mode
    identity = (status.st_dev, status.st_ino)
    if stat.S_ISDIR(mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISREG(mode):
        first = seen.setdefault(identity, name) if status.st_nlink > 1 else name
        if first != name:
            info.type, info.linkname = tarfile.LNKTYPE, first
        else:
            info.size = status.st_size
    elif stat.S_ISFIFO(mode):
        info.type = tarfile.FIFOTYPE
    elif stat.S_ISCHR(mode):
        info.type = tarfile.CHRTYPE
        info.devmajor, info.devminor = os.major(status.st_rdev), os.minor(status.st_rdev)
        if (info.devmajor, info.devminor) != (0, 0):
            return None  # no device but the overlay's own mark has a business here
    else:
        return None  # sockets are made anew by whoever listens
    return info


def unpack(source: BinaryIO, upper: Path, make_room: MakeRoom = _there_is) -> None:
    """Lay a packed layer out in a folder, an empty one unless room is made for each entry. Raises
    Corrupt for names that lead outside."""
    folders: list[tuple[Path, int]] = []
    try:
        with tarfile.open(fileobj=source, mode="r|", errors="surrogateescape") as archive:
            for info in archive:
                path = _inside(upper, info.name)
                if not make_room(info, path):
                    continue
                _make(archive, info, path, upper)
                time = _nanoseconds(info)
                if info.isdir():
                    folders.append((path, time))
                elif not info.islnk():
                    os.utime(path, ns=(time, time), follow_symlinks=False)
    except (tarfile.TarError, ValueError) as error:
        raise Corrupt(f"a sandbox's files cannot be unpacked: {error}") from None
    except OSError as error:
        raise from_os_error(error, "laying out a sandbox's files") from error
    for path, time in reversed(folders):  # filling a folder changed its time
        os.utime(path, ns=(time, time))


def _fill_sparse(archive: tarfile.TarFile, info: tarfile.TarInfo, file: BinaryIO) -> None:
    """`extractfile` would give holes as zeros, however many."""
    source: IO[bytes] = archive.fileobj  # type: ignore[assignment]  # it reads and seeks forward
    source.seek(info.offset_data)
    pieces: Iterable[tuple[int, int]] = getattr(info, "sparse", ())
    for offset, size in pieces:
        file.seek(offset)
        write(file, _blocks(source, size))
    file.truncate(info.size)


def _blocks(content: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0:
        block = content.read(min(size, _BLOCK))
        if not block:
            raise Corrupt("a sandbox's files cannot be unpacked: unexpected end of data")
        size -= len(block)
        yield block


def write(file: BinaryIO, blocks: Iterable[bytes]) -> None:
    """Into a new file. Pages of zeros become holes: what is inside may have more of them than there
    is room on the disk."""
    for block in blocks:
        step = len(_HOLE) if _HOLE in block else max(1, len(block))
        for start in range(0, len(block), step):
            piece = block[start : start + step]
            if piece == _HOLE:
                file.seek(step, os.SEEK_CUR)
            else:
                file.write(piece)
    file.truncate()


LayOut = Callable[[BinaryIO, Path], None]  # a packed layer, in a folder


class Fill(Protocol):
    """Lays files out in a folder. Blocking; may be called again, with another folder."""

    def __call__(self, into: Path, lay_out: LayOut = unpack) -> None: ...


def _make(archive: tarfile.TarFile, info: tarfile.TarInfo, path: Path, upper: Path) -> None:
    if info.isdir():
        path.mkdir(exist_ok=True)
    elif info.issym():
        os.symlink(info.linkname, path)
    elif info.islnk():
        os.link(_inside(upper, info.linkname), path, follow_symlinks=False)
        return
    elif info.isreg():
        with open(path, "xb") as file:
            if info.issparse():
                _fill_sparse(archive, info, file)
            else:
                content = archive.extractfile(info)
                if content is None:
                    raise Corrupt(f"{info.name!r} has no content")
                write(file, _blocks(content, info.size))
    elif info.isfifo():
        os.mkfifo(path)
    elif info.ischr() and (info.devmajor, info.devminor) == (0, 0):
        os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))
    else:
        raise Corrupt(f"{info.name!r} is of a kind that no sandbox has")
    if os.geteuid() == 0:
        os.chown(path, info.uid, info.gid, follow_symlinks=False)
    if not info.issym():
        os.chmod(path, info.mode)
    for key, value in info.pax_headers.items():
        if key.startswith(XATTR):
            data = value.encode("utf-8", "surrogateescape")
            os.setxattr(path, key.removeprefix(XATTR), data, follow_symlinks=False)


def _inside(upper: Path, name: str) -> Path:
    """Where a name belongs; its folders must be real ones, below the layer."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or name.startswith("/"):
        raise Corrupt(f"a name that leads outside: {name!r}")
    path = upper
    for part in parts[:-1]:
        path = path / part
        if path.is_symlink():
            raise Corrupt(f"a name that leads through a link: {name!r}")
    return path / parts[-1] if parts else upper


def _decimal(nanoseconds: int) -> str:
    return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09d}"


def _nanoseconds(info: tarfile.TarInfo) -> int:
    whole, _, rest = info.pax_headers.get("mtime", str(int(info.mtime))).partition(".")
    return int(whole) * 10**9 + int(rest.ljust(9, "0")[:9] or 0)
