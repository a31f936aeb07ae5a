"""The files of a layer, for people to look at. Nothing is unpacked: between the names, the stream
is skipped and not read."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from holdfast.model.checkpoint import Manifest
from holdfast.model.errors import Corrupt
from holdfast.oci.layer.entry import MAGIC, read_entries
from holdfast.store import Store

MOST_FILES = 5000
PART = "files/upper"
_BLOCK = 4096  # in which the holes of a file are counted
_TARRED = {tarfile.DIRTYPE: "folder", tarfile.SYMTYPE: "link", tarfile.CHRTYPE: "deleted"}
_LAYERED = {"d": "folder", "l": "link", "w": "deleted"}  # a container's layer has its own form


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a layer."""

    path: str
    kind: str
    size: int
    modified: float


def files(store: Store, manifest: Manifest, *, trust: bool) -> tuple[tuple[File, ...] | None, bool]:
    """The files of a checkpoint, and whether there are more; None where it has no layer."""
    if manifest.part(PART) is None:
        return None, False
    found: list[File] = []
    with store.open(manifest.checkpoint, PART, trust=trust) as stream:
        layered = stream.read(len(MAGIC)) == MAGIC
        stream.seek(0)
        try:
            for each in _layered(stream) if layered else _tarred(stream):
                if len(found) == MOST_FILES:
                    return tuple(found), True
                found.append(each)
        except (tarfile.TarError, ValueError):
            return (tuple(found) or None), True
    return tuple(found), False


def _tarred(stream: BinaryIO) -> Iterator[File]:
    with tarfile.open(fileobj=stream, mode="r:", errors="replace") as archive:
        for info in archive:
            if info.name not in (".", ""):
                kind = _TARRED.get(info.type, "file")
                yield File(path=info.name, kind=kind, size=info.size, modified=info.mtime)


def _layered(stream: BinaryIO) -> Iterator[File]:
    for entry in read_entries(stream):
        if entry.p:
            path = entry.p.decode("utf-8", "replace")
            kind = _LAYERED.get(entry.t, "file")
            yield File(path=path, kind=kind, size=entry.z, modified=entry.n / 1e9)
        stream.seek(entry.data_bytes, os.SEEK_CUR)


@dataclass(frozen=True, slots=True)
class Layer:
    """A fingerprint of every file of a layer, by its path."""

    digests: dict[str, str]


def layer(store: Store, manifest: Manifest) -> Layer:
    """The fingerprints of the files of a checkpoint; none where it has no layer. Raises Corrupt."""
    if manifest.part(PART) is None:
        return Layer({})
    with store.open(manifest.checkpoint, PART) as stream:
        return fingerprints(stream)


def fingerprints(stream: BinaryIO) -> Layer:
    """The fingerprints of the files in a sandbox's or a container's layer: kind, permissions,
    owner, target and content. Times are not in them: a folder's changes with what is in it."""
    is_layered = stream.read(len(MAGIC)) == MAGIC
    stream.seek(0)
    return Layer(dict(_layered_prints(stream) if is_layered else _tarred_prints(stream)))


def _tarred_prints(stream: BinaryIO) -> Iterator[tuple[str, str]]:
    with tarfile.open(fileobj=stream, mode="r:", errors="replace") as archive:
        for info in archive:
            digest = _digest(info.type, info.mode, info.uid, info.gid, info.linkname, info.size)
            content = archive.extractfile(info) if info.isreg() else None
            while content is not None and (block := content.read(1 << 20)):
                digest.update(block)
            yield info.name, digest.hexdigest()


def _layered_prints(stream: BinaryIO) -> Iterator[tuple[str, str]]:
    for entry in read_entries(stream):
        about = (entry.t, entry.m, entry.u, entry.g, sorted(entry.x.items()), entry.o, entry.r)
        digest = _digest(*about, entry.l, entry.d, entry.z)
        for offset, length in entry.e:
            end = offset + length
            while offset < end:
                block = stream.read(min(_BLOCK - offset % _BLOCK, end - offset))
                if not block:
                    raise Corrupt("a layer of files ends too early")
                # A hole and zeros are the same; where a hole begins is the file system's choice.
                if data := block.rstrip(b"\0"):
                    digest.update(offset.to_bytes(8, "big") + data)
                offset += len(block)
        if not entry.b:  # what looks like the image's has no looks of its own
            yield entry.p.decode("utf-8", "surrogateescape"), digest.hexdigest()


def _digest(*about: object) -> hashlib.blake2b:
    return hashlib.blake2b(repr(about).encode("utf-8", "replace"), digest_size=16)
