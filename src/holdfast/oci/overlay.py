"""The overlay under a container's root, found through mountinfo and never by searching in text."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import Unsupported

_ESCAPE = re.compile(rb"\\([0-7]{3})")
_REFUSED = ("metacopy", "index")  # features that tie a layer to inodes of the layers below


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo."""

    point: str
    kind: str
    options: tuple[str, ...]  # of the file system, not of the mount


@dataclass(frozen=True, slots=True)
class Overlay:
    """An overlay, as mounted at `point`."""

    point: str
    upper: str
    work: str
    lower: tuple[str, ...]


def parse_mountinfo(table: bytes) -> list[Mount]:
    """The mounts in the order in which they were made; later ones lie on top of earlier ones."""
    mounts = []
    for line in table.splitlines():
        before, dash, after = line.partition(b" - ")
        fields, tail = before.split(b" "), after.split(b" ")
        if dash and len(fields) >= 6 and len(tail) >= 3:
            options = tuple(_plain(each) for each in _split(tail[2], b","))
            mounts.append(Mount(_plain(fields[4]), _plain(tail[0]), options))
    return mounts


def overlay_at(mounts: list[Mount], point: str) -> Overlay:
    """The overlay that is the topmost mount at exactly this point; raises Unsupported."""
    found = next((mount for mount in reversed(mounts) if mount.point == point), None)
    if found is None:
        raise Unsupported(
            f"the container's root {point} is no mount",
            hint="use containerd's overlayfs snapshotter, or Docker's overlay2",
        )
    if found.kind != "overlay":
        raise Unsupported(
            f"the container's root {point} is of the kind {found.kind}, not an overlay",
            hint="use containerd's overlayfs snapshotter, or Docker's overlay2",
        )
    settings = dict(each.partition("=")[::2] for each in found.options)
    if refused := [name for name in _REFUSED if settings.get(name) == "on"]:
        raise Unsupported(f"overlays with {' and '.join(refused)} on cannot be captured")
    upper, work = settings.get("upperdir"), settings.get("workdir")
    if not upper or not work:
        raise Unsupported(f"the container's root {point} is read-only: it has no writable layer")
    if not os.path.isabs(upper):
        raise Unsupported(f"the writable layer of {point} was mounted by a relative path ({upper})")
    return Overlay(point, upper, work, tuple(_split_text(settings.get("lowerdir", ""))))


def bundle_root(bundle: str, config: Mapping[str, object]) -> str:
    """The container's root directory on the host."""
    root = config.get("root")
    path = root.get("path") if isinstance(root, Mapping) else None
    return os.path.realpath(os.path.join(bundle, path if isinstance(path, str) else "rootfs"))


def find_overlay(bundle: str, config: Mapping[str, object]) -> Overlay:
    """The overlay of a bundle's root, as this process sees it mounted; raises Unsupported."""
    table = Path("/proc/self/mountinfo").read_bytes()
    return overlay_at(parse_mountinfo(table), bundle_root(bundle, config))


def _plain(field: bytes) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), field))


def _split(text: bytes, separator: bytes) -> list[bytes]:
    """Split where the separator is not behind a backslash: paths may have commas in them."""
    return [
        each.replace(b"\\" + separator, separator)
        for each in re.split(rb"(?<!\\)" + re.escape(separator), text)
    ]


def _split_text(text: str) -> list[str]:
    return [os.fsdecode(each) for each in _split(os.fsencode(text), b":")]
