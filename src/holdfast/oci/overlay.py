"""The overlay under a container's root, found through mountinfo and never by searching in text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.errors import Unsupported
from holdfast.model.mounts import Mount, mounts_here, split

_REFUSED = ("metacopy", "index")  # features that tie a layer to inodes of the layers below


@dataclass(frozen=True, slots=True)
class Overlay:
    """An overlay, as mounted at `point`."""

    point: str
    upper: str
    work: str
    lower: tuple[str, ...]


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
    lower = split(os.fsencode(settings.get("lowerdir", "")), b":")
    return Overlay(point, upper, work, tuple(os.fsdecode(each) for each in lower))


def bundle_root(bundle: str, config: Mapping[str, object]) -> str:
    """The container's root directory on the host."""
    root = config.get("root")
    path = root.get("path") if isinstance(root, Mapping) else None
    return os.path.realpath(os.path.join(bundle, path if isinstance(path, str) else "rootfs"))


def find_overlay(bundle: str, config: Mapping[str, object]) -> Overlay:
    """The overlay of a bundle's root, as this process sees it mounted; raises Unsupported."""
    return overlay_at(mounts_here(), bundle_root(bundle, config))
