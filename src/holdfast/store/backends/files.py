"""Files: what is opened must be one. A pipe in its place would keep a reader waiting for ever."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from holdfast.model.errors import Corrupt, from_os_error
from holdfast.store.log.frames import Buffer

# Bytes handed to the kernel at a time. From 1 MiB on it looks for long stretches of free memory to
# cache them in, and where memory is scattered that takes longer than everything else: writing
# 640 MB took 0.14 s of processor time in bites of up to 512 KiB, and 0.3 to 1.0 s in larger ones.
BITE = 256 * 1024

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
}


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file; raises Corrupt for anything else, and OSError."""
    try:
        # Opening a pipe waits for its other end, and opening a device may do anything.
        kind = stat.S_IFMT(path.stat().st_mode)
        if kind == stat.S_IFREG:
            fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
            kind = stat.S_IFMT(os.fstat(fd).st_mode)
            if kind == stat.S_IFREG:
                return fd
            os.close(fd)
    except FileNotFoundError:
        if not path.is_symlink():
            raise
        raise _not_a_file(path, "a link to nothing") from None
    raise _not_a_file(path, _KINDS.get(kind, "something else"))


def _not_a_file(path: Path, what: str) -> Corrupt:
    return Corrupt(
        f"{path.parent.name}/{path.name} is {what}, not a file",
        where=path.name,
        hint="move it away; nothing that Holdfast makes is one",
    )


def write_all(fd: int, data: Buffer, offset: int) -> None:
    """Write everything at an offset."""
    view = memoryview(data).cast("B")
    while len(view):
        written = os.pwrite(fd, view[:BITE], offset)
        view, offset = view[written:], offset + written


def write_pieces(fd: int, pieces: Sequence[Buffer], offset: int) -> int:
    """Write pieces one after the other at an offset, at once where they are small; where they
    end."""
    end = offset + sum(map(len, pieces))
    if end - offset <= BITE:
        write_all(fd, b"".join(pieces), offset)
        return end
    bite: list[memoryview] = []
    for piece in pieces:
        view = memoryview(piece)
        while view:
            room = BITE - sum(map(len, bite))
            bite.append(view[:room])
            view = view[room:]
            if view:
                offset, bite = _bitten(fd, bite, offset), []
    return _bitten(fd, bite, offset)


def _bitten(fd: int, bite: Sequence[memoryview], offset: int) -> int:
    """Write what is no more than a bite; where it ends."""
    end = offset + sum(map(len, bite))
    written = os.pwritev(fd, bite, offset)
    if offset + written < end:  # hardly ever
        write_all(fd, b"".join(bite)[written:], offset + written)
    return end


class Saying:
    """Turn operating-system errors into Holdfast's, saying what was being done."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise from_os_error(error, self._doing) from error
