"""The writable layer of a sandbox laid out through its root, which is mounted already.

Nobody may change the folders that an overlay is mounted from: the kernel goes by what it remembers
of them. Through the mount everything is written as a program inside would write it, and the kernel
makes of it what the layer was: a mark of the overlay's own is something to delete.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import BinaryIO

from holdfast.model.errors import Unsupported
from holdfast.sandbox import upper

# Attributes that a folder of the root below may have, and the same folder of a layer not.
_ATTRIBUTES = ("user.", "system.posix_acl_", "security.capability")


def unpack(source: BinaryIO, root: Path, held: Collection[str]) -> None:
    """Lay a packed layer out in a mounted root to which nothing was written. Raises Unsupported
    for a layer without one of the paths that are `held`, where something is mounted inside: what
    is removed here is gone from there, too. Raises as `upper.unpack` besides; whatever it raises,
    the root is of no more use."""
    places = [root / path.lstrip("/") for path in held]
    upper.unpack(source, root, partial(_make_room, places))


def _make_room(held: Collection[Path], info: tarfile.TarInfo, path: Path) -> bool:
    mark = upper.XATTR + upper.OPAQUE
    opaque = mark in info.pax_headers
    info.pax_headers = {key: info.pax_headers[key] for key in info.pax_headers if key != mark}
    # The overlay's mark, which says that nothing is there.
    made = not (info.ischr() and (info.devmajor, info.devminor) == (0, 0))
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return made
    if info.isdir() and stat.S_ISDIR(mode) and not opaque:
        _forget_attributes(info, path)
        return made
    if any(place.is_relative_to(path) for place in held):
        raise Unsupported(f"{info.name!r} of the layer is in the way of a mount")
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    return made


def _forget_attributes(info: tarfile.TarInfo, path: Path) -> None:
    for name in os.listxattr(path, follow_symlinks=False):
        if name.startswith(_ATTRIBUTES) and upper.XATTR + name not in info.pax_headers:
            os.removexattr(path, name, follow_symlinks=False)
