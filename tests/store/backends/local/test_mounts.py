"""Which file systems are safe for leases, and which are refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store.backends.local.mounts import Mount, find_mount, lease_refusal, mount_of


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ext4", "rw"),
        ("overlay", "rw"),
        ("tmpfs", "rw"),
        ("fuseblk", "rw"),
        ("ceph", "rw"),
        ("nfs4", "rw,vers=4.2,noac,local_lock=none"),
        ("lustre", "rw,flock"),
        ("", ""),
    ],
)
def test_where_everybody_sees_locks_and_writes_at_once_leases_are_safe(
    kind: str, options: str
) -> None:
    assert lease_refusal(Mount(kind, frozenset(options.split(",")))) is None


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("nfs4", "rw,vers=4.2,local_lock=none", "late"),
        ("nfs", "rw,noac,nolock", "one machine"),
        ("nfs", "rw,noac,local_lock=flock", "one machine"),
        ("nfs", "rw,noac,local_lock=all", "one machine"),
        ("cifs", "rw", "cifs"),
        ("fuse.sshfs", "rw", "sshfs"),
        ("9p", "rw", "9p"),
        ("lustre", "rw,localflock", "Lustre"),
    ],
)
def test_elsewhere_they_are_refused_in_words(kind: str, options: str, words: str) -> None:
    refusal = lease_refusal(Mount(kind, frozenset(options.split(","))))
    assert refusal is not None
    why, hint = refusal
    assert words in why
    assert hint


LINES = [
    "22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro",
    "40 22 0:50 / /home rw shared:2 - nfs4 server:/home rw,vers=4.2,local_lock=none",
    "41 22 0:51 / /home/with\\040space rw - tmpfs tmpfs rw,size=1k",
    "42 22 0:52 / /homework rw - xfs /dev/sdb rw",
    "43 40 0:53 / /home rw - cifs //other rw",
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/home/me/store", "cifs"),  # mounted over the other one
        ("/home/with space/store", "tmpfs"),
        ("/homework/store", "xfs"),
    ],
)
def test_the_innermost_mount_counts(path: str, kind: str) -> None:
    assert find_mount(Path(path), LINES).kind == kind


def test_options_of_the_mount_and_of_the_file_system_are_known() -> None:
    mount = find_mount(Path("/"), LINES)
    assert {"relatime", "errors=remount-ro"} <= mount.options


def test_this_machine_says_what_a_directory_is_on(tmp_path: Path) -> None:
    assert mount_of(tmp_path).kind
    assert mount_of(Path("/proc")).kind == "proc"
