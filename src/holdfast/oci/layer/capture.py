"""From an upper directory to a stream. Whoever calls it sees to it that nothing changes meanwhile.

`plan` looks at everything and reads no data; `write` copies what the plan says.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from holdfast.model.errors import CaptureFailed, Unsupported
from holdfast.oci.layer.entry import MAGIC, Entry, Type, encode

_OVERLAY = "trusted.overlay."
_METACOPY = _OVERLAY + "metacopy"
_OPAQUE = _OVERLAY + "opaque"
_REDIRECT = _OVERLAY + "redirect"
_COPY = 1024 * 1024
_TYPES: dict[int, Type] = {
    stat.S_IFDIR: "d",
    stat.S_IFREG: "f",
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
    stat.S_IFCHR: "c",
    stat.S_IFBLK: "b",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """What a captured layer holds."""

    entries: int
    data_bytes: int
    stream_bytes: int


def plan(upper: str) -> Iterator[Entry]:
    """Everything in an upper directory, in the stream's order; raises Unsupported."""
    top = os.fsencode(upper)
    links: dict[tuple[int, int], bytes] = {}
    pending = [b""]
    while pending:  # no recursion: a container may nest its directories as deep as it likes
        path = pending.pop()
        full = os.path.join(top, path) if path else top
        entry = _entry(full, path, links)
        yield entry
        if entry.t == "d":
            # By components, not by whole paths: `a` and all below it come before `a.b`.
            names = sorted(os.listdir(full), reverse=True)
            pending.extend(os.path.join(path, name) if path else name for name in names)


def write(upper: str, out: BinaryIO) -> Summary:
    """Write the stream of an upper directory to a file that lies at its end."""
    top = os.fsencode(upper)
    entries = data = 0
    out.write(MAGIC)
    for entry in plan(upper):
        out.write(encode(entry))
        if entry.e:
            _copy(top, entry, out)
        entries += 1
        data += entry.data_bytes
    out.write(encode(Entry(t="end", k=entries)))
    out.flush()
    return Summary(entries, data, out.tell())


def _entry(full: bytes, path: bytes, links: dict[tuple[int, int], bytes]) -> Entry:
    info = os.lstat(full)
    kind = _TYPES[stat.S_IFMT(info.st_mode)]
    if kind == "c" and info.st_rdev == 0:
        return Entry(t="w", p=path)
    if kind != "d" and info.st_nlink > 1:
        place = (info.st_dev, info.st_ino)
        if place in links:
            return Entry(t="h", p=path, l=links[place])
        links[place] = path
    attributes = _attributes(full)
    if _METACOPY in attributes:
        raise Unsupported(f"{path!r} in the writable layer has no data of its own (metacopy)")
    redirect = attributes.get(_REDIRECT)
    own = {os.fsencode(k): v for k, v in attributes.items() if not k.startswith(_OVERLAY)}
    return Entry(
        t=kind,
        p=path,
        m=stat.S_IMODE(info.st_mode),
        u=info.st_uid,
        g=info.st_gid,
        n=info.st_mtime_ns,
        x=own,
        o=kind == "d" and attributes.get(_OPAQUE) == b"y",
        r=redirect,
        l=os.readlink(full) if kind == "l" else b"",
        d=(os.major(info.st_rdev), os.minor(info.st_rdev)) if kind in "cb" else (0, 0),
        z=info.st_size if kind == "f" else 0,
        e=_runs(full, info.st_size) if kind == "f" else (),
    )


def _attributes(full: bytes) -> dict[str, bytes]:
    found = {}
    for name in os.listxattr(full, follow_symlinks=False):
        # Some security modules list what they then do not let anyone read.
        with suppress(OSError):
            found[name] = os.getxattr(full, name, follow_symlinks=False)
    return found


def _runs(full: bytes, size: int) -> tuple[tuple[int, int], ...]:
    """Where a file has data; the rest is holes. One run when the file system cannot tell."""
    if size == 0:
        return ()
    fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOATIME)
    try:
        runs, at = [], 0
        while at < size:
            try:
                start = os.lseek(fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                    break
                return ((0, size),)
            at = min(os.lseek(fd, start, os.SEEK_HOLE), size)
            runs.append((start, at - start))
        return tuple(runs)
    finally:
        os.close(fd)


def _copy(top: bytes, entry: Entry, out: BinaryIO) -> None:
    fd = os.open(
        os.path.join(top, entry.p), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOATIME
    )
    try:
        for offset, length in entry.e:
            end = offset + length
            while offset < end:
                data = os.pread(fd, min(_COPY, end - offset), offset)
                if not data:
                    raise CaptureFailed(f"{entry.p!r} became shorter while it was captured")
                out.write(data)
                offset += len(data)
    finally:
        os.close(fd)
