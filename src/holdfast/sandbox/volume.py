"""Volumes: a place of limited size for what one sandbox writes, and its root mounted over it.

As root, a volume is a file system of its own in a sparse file, so that a full disk inside is full
inside only, and the root is an overlay. Without root it is a folder, whose `root` and `tmp` stand
in for the writable places of the sandbox, and its size is not limited.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import HoldfastError, from_os_error
from holdfast.runtime.command import run
from holdfast.sandbox.agent import USER

_SECONDS = 60.0
_libc = ctypes.CDLL(None, use_errno=True)
# Metadata of the file system itself: what a user is promised is for data.
_EXTRA = 8 << 20


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder with what a sandbox wrote (`upper`) and, as root, where its root is (`merged`)."""

    folder: Path
    privileged: bool

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    @property
    def upper(self) -> Path:
        return self.disk / "upper"

    @property
    def merged(self) -> Path:
        return self.folder / "merged"


def make(folder: Path, disk_bytes: int, *, privileged: bool | None = None) -> Volume:
    """An empty volume. Raises HoldfastError and leaves nothing."""
    volume = Volume(folder, os.geteuid() == 0 if privileged is None else privileged)
    try:
        volume.disk.mkdir(parents=True)
        if volume.privileged:
            volume.merged.mkdir()
            _make_disk(folder / "disk.img", volume.disk, disk_bytes)
        volume.upper.mkdir(exist_ok=True)
        volume.upper.chmod(0o755)
        (volume.disk / "work").mkdir(exist_ok=True)
    except OSError as error:
        clear(volume)
        raise from_os_error(error, "making room for a sandbox") from error
    except HoldfastError:
        clear(volume)
        raise
    return volume


def furnish(volume: Volume) -> None:
    """The writable places that every sandbox has: a home and a `/tmp`."""
    for name, mode in (("root", 0o755), ("tmp", 0o1777)):
        place = volume.upper / name
        place.mkdir(exist_ok=True)
        place.chmod(mode)
        if volume.privileged:
            os.chown(place, USER if name == "root" else 0, USER if name == "root" else 0)


def mount_root(volume: Volume, lower: Path) -> None:
    """Lay the volume over a root that stays as it is. Raises HoldfastError."""
    places = (("lowerdir", lower), ("upperdir", volume.upper), ("workdir", volume.disk / "work"))
    options = ",".join(f"{name}={_escaped(place)}" for name, place in places)
    options += ",redirect_dir=off,metacopy=off,index=off"
    # As `mount` does it, without starting it: somebody waits.
    where = os.fsencode(volume.merged)
    if _libc.mount(b"overlay", where, b"overlay", 0, os.fsencode(options)):
        number = ctypes.get_errno()
        trouble = OSError(number, os.strerror(number), str(volume.merged))
        raise from_os_error(trouble, "mounting the root of a sandbox") from trouble


def _escaped(place: Path) -> str:
    """A path as an option of an overlay, of which some signs are a part of the language."""
    return re.sub(r"([\\,:])", r"\\\1", str(place))


def clear(volume: Volume) -> None:
    """Unmount and delete; what stays mounted stays, with its folder."""
    if volume.privileged:
        for place in (volume.merged, volume.disk):
            if os.path.ismount(place):
                run(("umount", "--lazy", str(place)), seconds=_SECONDS)
        if any(os.path.ismount(place) for place in (volume.merged, volume.disk)):
            return
    shutil.rmtree(volume.folder, ignore_errors=True)


def _make_disk(image: Path, where: Path, size: int) -> None:
    with open(image, "xb") as file:
        file.truncate(size + _EXTRA)
    # No journal: nothing of it outlives a crash of the machine anyway.
    features = ("-O", "^has_journal", "-m", "0", "-E", "lazy_itable_init=1,nodiscard")
    _do(("mkfs.ext4", "-q", "-F", *features, str(image)))
    _do(("mount", "-o", "loop,noatime,nodev", str(image), str(where)))
    lost = where / "lost+found"
    if lost.is_dir():
        lost.rmdir()


def _do(argv: Sequence[str]) -> None:
    outcome = run(argv, seconds=_SECONDS)
    if not outcome.succeeded:
        raise HoldfastError(f"{argv[0]}: {outcome.reason()}")
