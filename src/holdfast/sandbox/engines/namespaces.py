"""Namespaces without bubblewrap: the same walls with `unshare` and a few mounts, as root.

It is no security boundary, as bubblewrap's is none: the kernel is the host's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from holdfast.model.errors import Unsupported
from holdfast.sandbox.contract import Build

PROGRAMS = ("unshare", "setpriv", "chroot", "mount", "mknod", "hostname")
# What the agent needs to give up its power for each program, and to enter its root.
_POWERS = ("setuid", "setgid", "setpcap", "kill", "chown", "sys_chroot")
# Runs in the new namespaces: $1 is the root, then pairs of what is bound where, `--`, the agent.
_SCRIPT = """
root=$1; shift
while [ "$1" != -- ]; do mount -o bind,ro,nosuid,nodev "$1" "$root$2"; shift 2; done; shift
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs "$root/run"
mount -t tmpfs -o nosuid,noexec,mode=755 tmpfs "$root/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 "$root/dev/tty" c 5 0
mkdir -m 1777 "$root/dev/shm"
mkdir "$root/dev/pts"
mount -t devpts -o nosuid,noexec,newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
for name in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do
    ln -s "/proc/self/${name#*:}" "$root/dev/${name%:*}"
done
hostname sandbox
exec setpriv --inh-caps=-all --bounding-set="$POWERS" chroot "$root" "$@"
"""


class Namespaces:
    """Starts a box with the tools that every Linux has."""

    def __init__(self) -> None:
        lacking = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
        if os.geteuid() != 0 or lacking:
            why = "root" if not lacking else ", ".join(lacking)
            raise Unsupported(
                f"the engine process needs bubblewrap, or {why}",
                hint="apt-get install bubblewrap",
            )

    def words(self, build: Build) -> list[str]:
        kinds = ["--mount", "--pid", "--ipc", "--uts", *([] if build.network else ["--net"])]
        pairs = [each for mount in _mounts(build) for each in mount]
        start = ["unshare", *kinds, "--fork", "--kill-child", "--propagation", "private"]
        inside = [str(build.volume.merged), *pairs, "--", *build.root.agent]
        return [*start, "/bin/sh", "-euc", _SCRIPT, "sh", *inside]

    def environ(self, build: Build) -> Mapping[str, str]:
        powers = ",".join(["-all", *(f"+{name}" for name in _POWERS)])
        home = {"PYTHONHOME": "/.holdfast/python"} if build.root.name != "default" else {}
        return {"PATH": _PATH, "POWERS": powers, **home}


_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def _mounts(build: Build) -> list[tuple[str, str]]:
    found = [(mount.source, mount.target) for mount in build.root.mounts]
    if build.network and os.path.exists("/etc/resolv.conf"):
        found.append((os.path.realpath("/etc/resolv.conf"), "/etc/resolv.conf"))
    return found
