"""The writable layer as Podman has it, and back: a tar of what is new, and a list of what is gone.

Podman's form says less than ours. It names only what changed, so the directories above are taken
over as the image has them; and a directory that hides another has no word in it.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from holdfast.model import mtime
from holdfast.model.errors import Corrupt, Unsupported
from holdfast.oci.layer.entry import MAGIC, Entry, Order, Type, encode, read_entries

_XATTR = "SCHILY.xattr."
_COPY = 1024 * 1024
_KINDS: dict[Type, bytes] = {
    "f": tarfile.REGTYPE,
    "d": tarfile.DIRTYPE,
    "l": tarfile.SYMTYPE,
    "h": tarfile.LNKTYPE,
    "p": tarfile.FIFOTYPE,
    "c": tarfile.CHRTYPE,
    "b": tarfile.BLKTYPE,
}
_TYPES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class Losses:
    """What a tar of files cannot say: paths that are gone, and directories that replace others."""

    deleted: tuple[str, ...]
    replaced: tuple[str, ...]


def write_tar(layer: BinaryIO, out: BinaryIO) -> Losses:
    """Write a layer as a tar; raises Unsupported, Corrupt. Sockets are left out: whoever listens
    on one makes it again."""
    deleted, replaced = [], []
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in read_entries(layer):
            path = os.fsdecode(entry.p)
            data = _Data(layer, entry)
            if entry.r is not None:
                raise Unsupported(f"{path} was renamed; Podman has no word for it")
            if entry.t == "w":
                deleted.append(f"/{path}")
            elif entry.b:
                continue  # it is as the image has it
            elif entry.t in _KINDS:
                if entry.o:
                    replaced.append(f"/{path}")
                tar.addfile(_info(entry, path or "./"), data if entry.t == "f" else None)
    return Losses(tuple(deleted), tuple(replaced))


def write_layer(tar: tarfile.TarFile, deleted: Sequence[str], out: BinaryIO) -> None:
    """Write a tar and a list of what is gone as a layer; raises Corrupt, Unsupported."""
    order, count = Order(), 0
    out.write(MAGIC)
    for entry, member in _entries(tar, deleted):
        order.check(entry)
        out.write(encode(entry))
        if entry.e and member is not None:
            _copy(tar, member, entry, out)
        count += 1
    out.write(encode(Entry(t="end", k=count)))
    out.flush()


class _Data(io.RawIOBase):
    """A file's bytes, its holes as zeros, from the stream of a layer."""

    def __init__(self, layer: BinaryIO, entry: Entry) -> None:
        self._layer = layer
        self._runs = [*entry.e, (entry.z, 0)]
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        start, length = self._runs[0]
        if self._at < start:
            found = bytes(min(size, start - self._at))
        elif length:
            found = self._layer.read(min(size, start + length - self._at))
            if not found:
                raise Corrupt("a layer of files ends too early")
        else:
            return b""
        self._at += len(found)
        if self._at == start + length and length:
            self._runs.pop(0)
        # A tar takes fewer bytes than it asked for as the end of a file.
        return found + self.read(size - len(found)) if len(found) < size else found


def _info(entry: Entry, path: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.type = _KINDS[entry.t]
    info.mode, info.uid, info.gid = entry.m, entry.u, entry.g
    info.size = entry.z if entry.t == "f" else 0
    info.linkname = os.fsdecode(entry.l)
    info.devmajor, info.devminor = entry.d
    info.pax_headers = {_XATTR + os.fsdecode(k): os.fsdecode(v) for k, v in entry.x.items()}
    info.mtime, finer = divmod(entry.n, 10**9)
    if finer:
        info.pax_headers[mtime.HEADER] = mtime.to_text(entry.n)
    return info


def _entries(
    tar: tarfile.TarFile, deleted: Sequence[str]
) -> Iterator[tuple[Entry, tarfile.TarInfo | None]]:
    """Everything in a layer's order, with the directories that the tar takes for granted."""
    found: dict[bytes, tarfile.TarInfo | None] = {_path(name): None for name in deleted}
    gone = set(found)
    top: tarfile.TarInfo | None = None
    for member in tar:
        if path := _path(member.name):
            found[path] = member
            gone.discard(path)
        else:
            top = member
    for path in list(found):
        while path := path.rpartition(b"/")[0]:
            found.setdefault(path, None)
    links: dict[bytes, bytes] = {}  # the first name of a file that has several
    yield (_entry(top, b"") if top is not None else _as_below(b"")), None
    for path in sorted(found, key=lambda each: each.split(b"/")):
        there = found[path]
        if there is None:
            yield (Entry(t="w", p=path) if path in gone else _as_below(path)), None
            continue
        target = _path(there.linkname) if there.islnk() else path
        if target in links:
            yield Entry(t="h", p=path, l=links[target]), None
        else:
            links[target] = path
            first = there if target == path else _linked(found, target)
            yield _entry(first, path), first


def _linked(found: dict[bytes, tarfile.TarInfo | None], path: bytes) -> tarfile.TarInfo:
    target = found.get(path)
    if target is None or target.islnk() or target.isdir():
        raise Corrupt(f"a link in the archive leads to {path!r}, which is not there")
    return target


def _as_below(path: bytes) -> Entry:
    return Entry(t="d", p=path, m=0o755, b=True)


def _entry(member: tarfile.TarInfo, path: bytes) -> Entry:
    kind = _TYPES.get(tarfile.REGTYPE if member.isreg() else member.type)
    if kind is None:
        raise Unsupported(f"{member.name} in the archive is of an unknown kind")
    size = member.size if kind == "f" else 0
    return Entry(
        t=kind,
        p=path,
        m=stat.S_IMODE(member.mode),
        u=member.uid,
        g=member.gid,
        n=mtime.of_member(member),
        x={
            os.fsencode(key.removeprefix(_XATTR)): os.fsencode(value)
            for key, value in member.pax_headers.items()
            if key.startswith(_XATTR)
        },
        l=os.fsencode(member.linkname) if kind == "l" else b"",
        d=(member.devmajor, member.devminor) if kind in "cb" else (0, 0),
        z=size,
        e=((0, size),) if size else (),
    )


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, entry: Entry, out: BinaryIO) -> None:
    stream = tar.extractfile(member)
    left = entry.z
    while left and stream is not None and (data := stream.read(min(_COPY, left))):
        out.write(data)
        left -= len(data)
    if left:
        raise Corrupt(f"{member.name} in the archive ends too early")


def _path(name: str) -> bytes:
    """A name of the archive as a path of a layer; the layer's reader refuses what cannot be."""
    return os.fsencode(name.removeprefix("./").strip("/")) if name not in (".", "./", "/") else b""
