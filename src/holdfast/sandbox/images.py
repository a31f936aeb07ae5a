"""Images: a folder, a tar or an OCI layout as the root of sandboxes. Blocking.

What is unpacked comes from somebody else: names never lead outside, digests are checked, and only
files, folders and links are made.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.model import mtime
from holdfast.model.errors import BadInput, Corrupt, NotFound, Unsupported, from_os_error

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
# Folders of programs and libraries, and what package managers write.
_SHOWS = (
    *("", "bin", "sbin", "lib", "lib64", "etc", "usr", "usr/bin", "usr/sbin", "usr/lib"),
    *("usr/lib64", "usr/local/bin", "usr/local/lib"),
    *("var/lib/dpkg/status", "lib/apk/db/installed", "var/lib/rpm/rpmdb.sqlite"),
)
_INDEX = "application/vnd.oci.image.index.v1+json"
_LAYERS = {
    "application/vnd.oci.image.layer.v1.tar": "r:",
    "application/vnd.oci.image.layer.v1.tar+gzip": "r:gz",
}


def prepare(source: Path, into: Path) -> tuple[Path, str]:
    """The folder that is the root, and a digest that says which it is. A folder is used as it
    stands; everything else is unpacked into `into`. Raises HoldfastError."""
    try:
        if (source / "oci-layout").is_file():
            return _layout(source, into)
        if source.is_dir():
            return source.resolve(), f"folder:{source.resolve()}#{fingerprint(_telling(source))}"
        if not source.exists():
            raise NotFound(f"there is no image at {source}")
        into.mkdir(parents=True)
        with open(source, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        _apply(source, "r:*", into)
        return into, f"sha256:{digest}"
    except tarfile.TarError as error:
        raise BadInput(f"{source} is no image: {error}") from None
    except OSError as error:
        raise from_os_error(error, f"preparing the image {source}") from error


def fingerprint(places: Iterable[Path]) -> str:
    """What changes when programs or libraries are put in place, without reading them: sizes and
    times of files, and times of folders. What is not there says that."""
    seen: list[tuple[str, int | None, int]] = []
    for place in places:
        try:
            status = place.stat()
        except OSError:
            seen.append((place.name, None, 0))
            continue
        size = None if stat.S_ISDIR(status.st_mode) else status.st_size
        seen.append((place.name, size, status.st_mtime_ns))
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]


def _telling(root: Path) -> list[Path]:
    """Where a folder shows that something was installed."""
    libraries = sorted((root / "usr" / "lib").glob("*-linux-*"))
    return [*(root / name for name in _SHOWS), *libraries]


def _layout(source: Path, into: Path) -> tuple[Path, str]:
    index = json.loads((source / "index.json").read_bytes())
    found = _one(index)
    while found.get("mediaType") == _INDEX:
        found = _one(json.loads(_blob(source, found).read_bytes()))
    manifest = json.loads(_blob(source, found).read_bytes())
    into.mkdir(parents=True)
    for layer in manifest["layers"]:
        mode = _LAYERS.get(str(layer.get("mediaType")))
        if mode is None:
            raise Unsupported(
                f"a layer of type {layer.get('mediaType')!r:.100}",
                hint="tar and tar+gzip are known",
            )
        _apply(_blob(source, layer), mode, into)
    return into, str(found["digest"])


def _one(index: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of an index; several mean several machines, and ours is looked for."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine)
    manifests = list(index.get("manifests", ()))
    ours = [each for each in manifests if each.get("platform", {}).get("architecture") == machine]
    if not manifests or (len(manifests) > 1 and len(ours) != 1):
        raise BadInput("the layout does not hold one image for this machine")
    return dict(ours[0] if ours else manifests[0])


def _blob(source: Path, descriptor: Mapping[str, Any]) -> Path:
    """A blob, with the bytes that its digest says."""
    algorithm, _, value = str(descriptor.get("digest", "")).partition(":")
    if algorithm != "sha256" or len(value) != 64 or not value.isalnum():
        raise BadInput(f"a digest that is not sha256: {descriptor.get('digest')!r:.100}")
    place = source / "blobs" / algorithm / value
    with open(place, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != value:
            raise Corrupt(f"the image's blob {value[:12]} is not what its digest says")
    return place


def _apply(layer: Path, mode: str, into: Path) -> None:
    """Lay one layer over what is there."""
    with tarfile.open(layer, mode) as archive:  # type: ignore[call-overload]
        for info in archive:
            folder, _, name = info.name.rstrip("/").rpartition("/")
            if name == _OPAQUE:
                _empty(_inside(into, folder))
            elif name.startswith(_WHITEOUT):
                _remove(_inside(into, f"{folder}/{name.removeprefix(_WHITEOUT)}"))
            elif info.isfile() or info.isdir() or info.issym() or info.islnk():
                target = _inside(into, info.name)
                for above in target.parents:  # a layer need not name what its files are in
                    if above == into:
                        break
                    if above.exists() and not above.is_dir():
                        above.unlink()
                if target.is_symlink() or not (info.isdir() and target.is_dir()):
                    _remove(target)
                _unpack(archive, info, target, into)


def _unpack(archive: tarfile.TarFile, info: tarfile.TarInfo, target: Path, into: Path) -> None:
    """One member, with its owner, mode and time. Not tarfile's own way of it: that lets a hard
    link lead outside, and knows filters against other such things only since Python 3.11.4."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if info.islnk():
        source = _inside(into, info.linkname)
        if source.is_dir() or not (source.exists() or source.is_symlink()):
            raise BadInput(f"a link in the image leads nowhere: {info.name!r:.200}")
        os.link(source, target, follow_symlinks=False)
        return  # whose all else is
    if info.issym():
        target.symlink_to(info.linkname)
    elif info.isdir():
        target.mkdir(exist_ok=True)
    else:
        content = archive.extractfile(info)
        assert content is not None  # of a file
        with open(target, "xb") as file:
            shutil.copyfileobj(content, file)
    if os.geteuid() == 0:
        os.chown(target, info.uid, info.gid, follow_symlinks=False)
    if not info.issym():
        target.chmod(info.mode & 0o7777)
        time = mtime.of_member(info)
        os.utime(target, ns=(time, time))


def _inside(into: Path, name: str) -> Path:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    path = into
    for number, part in enumerate(parts):
        if part == ".." or (number and path.is_symlink()):
            raise BadInput(f"a name in the image leads outside: {name!r:.200}")
        path = path / part
    return path


def _empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        for each in folder.iterdir():
            _remove(each)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
