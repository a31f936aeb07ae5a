"""The writable layer of a sandbox as one stream, and back: exactly, times to the nanosecond.

gVisor compares sizes and times of open files when it restores, and an overlay's deletions are
devices and attributes; an ordinary copy of files would lose both.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from holdfast.model.errors import BadInput, Corrupt, from_os_error

XATTR = "SCHILY.xattr."
# What says that a folder hides the one below; the overlay's other notes are about this machine.
OPAQUE = "trusted.overlay.opaque"
_KEPT = (OPAQUE, "security.capability")
_BLOCK = 1 << 20
_HOLE = bytes(4096)
# Sees to it that an entry can be made at a place; False where nothing is to be made then.
MakeRoom = Callable[[tarfile.TarInfo, Path], bool]


def _there_is(info: tarfile.TarInfo, path: Path) -> bool:
    return True


def pack(upper: Path) -> Iterator[bytes]:
    """The layer as a tar, piece by piece. Raises HoldfastError."""
    try:
        yield from _pack(upper)
    except OSError as error:
        raise from_os_error(error, "reading a sandbox's files") from error


def _pack(upper: Path) -> Iterator[bytes]:
    seen: dict[tuple[int, int], str] = {}
    for path, status in _walk(str(upper)):
        name = os.path.relpath(path, upper)
        header = _header(name, path, status, seen)
        if header is None:
            continue
        yield header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if header.isreg() and header.size:
            yield from _content(path, header.size)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _walk(top: str) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below, folders before what is in them, in a stable order."""
    yield top, os.lstat(top)
    pending = [top]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            yield entry.path, status
            if stat.S_ISDIR(status.st_mode):
                pending.append(entry.path)


def _header(
    name: str, path: str, status: os.stat_result, seen: dict[tuple[int, int], str]
) -> tarfile.TarInfo | None:
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(status.st_mode)
    info.uid, info.gid = status.st_uid, status.st_gid
    info.pax_headers = {"mtime": _decimal(status.st_mtime_ns)}
    for key in os.listxattr(path, follow_symlinks=False):
        if key in _KEPT or key.startswith("user."):
            value = os.getxattr(path, key, follow_symlinks=False)
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


def _content(path: str, size: int) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        left = size
        while left:
            block = file.read(min(left, _BLOCK))
            if not block:
                raise BadInput(f"{path} became shorter while it was being saved")
            left -= len(block)
            yield block
    if size % tarfile.BLOCKSIZE:
        yield bytes(tarfile.BLOCKSIZE - size % tarfile.BLOCKSIZE)


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
    except tarfile.TarError as error:
        raise Corrupt(f"a sandbox's files cannot be unpacked: {error}") from None
    except OSError as error:
        raise from_os_error(error, "laying out a sandbox's files") from error
    for path, time in reversed(folders):  # filling a folder changed its time
        os.utime(path, ns=(time, time))


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
        content = archive.extractfile(info)
        if content is None:
            raise Corrupt(f"{info.name!r} has no content")
        with open(path, "xb") as file:
            write(file, iter(lambda: content.read(_BLOCK), b""))
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
