"""Mounts: whether what one process locks and writes is seen by all others that use a directory.

On one machine the kernel sees to it. Over a network it depends on the file system and on how it
is mounted, so each is either known to be safe or refused.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

_NFS = {"nfs", "nfs4"}
_REMOTE = {"cifs", "smb3", "smbfs", "afs", "9p", "virtiofs", "glusterfs", "gpfs", "beegfs", "pvfs2"}
_LOCAL_FUSE = {"fuseblk", "fuse.fuse-overlayfs"}


@dataclass(frozen=True, slots=True)
class Mount:
    """What a directory is on."""

    kind: str
    options: frozenset[str] = frozenset()


def lease_refusal(mount: Mount) -> tuple[str, str] | None:
    """Why leases are not safe there, and what to do about it; None when they are."""
    kind, options = mount.kind, mount.options
    if kind in _NFS:
        return _nfs_refusal(options)
    if kind == "lustre":
        if "flock" in options:
            return None
        return "on this Lustre other machines do not see locks", "mount it with `flock`"
    if kind in _REMOTE or (kind.startswith("fuse") and kind not in _LOCAL_FUSE):
        return (
            f"on a file system of the kind {kind} locks may not be seen by other machines",
            "use a local directory, NFS mounted with `noac`, or an object store",
        )
    return None  # one machine's own; or Ceph, GFS2, OCFS2, where all see everything at once


def _nfs_refusal(options: Set[str]) -> tuple[str, str] | None:
    if "nolock" in options or options & {"local_lock=all", "local_lock=flock"}:
        return "this NFS keeps locks to one machine", "mount it without nolock and local_lock"
    if "noac" not in options:
        # A cached size would let a writer write over what another machine appended.
        return "this NFS shows other machines' writes late", "mount it with `noac`"
    return None


def mount_of(path: Path) -> Mount:
    """What the directory is on, as the kernel says; a kind of "" where it does not."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return Mount("")
    return find_mount(path.resolve(), lines)


def find_mount(path: Path, lines: list[str]) -> Mount:
    """The last of the innermost mounts that hold the path, out of the lines of `mountinfo`."""
    found, depth = Mount(""), -1
    for line in lines:
        before, _, after = line.partition(" - ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), before.split()[4]))
        if path.is_relative_to(point) and len(point.parts) >= depth:
            kind, _, options = after.split(" ", 2)
            own = before.split()[5]
            found = Mount(kind, frozenset([*own.split(","), *options.split(",")]))
            depth = len(point.parts)
    return found
