"""Namespaces without bubblewrap: the same walls with `unshare` and a few mounts.

As root, or as anybody whom the kernel lets have a user namespace. It is no security boundary, as
bubblewrap's is none: the kernel is the host's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

from holdfast.model.errors import Unsupported
from holdfast.runtime.command import run
from holdfast.sandbox.contract import Build
from holdfast.sandbox.launch import Walls

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_PROBE_SECONDS = 10.0
# What the agent needs to give up its power for each program, and to enter its root.
_POWERS = ("setuid", "setgid", "setpcap", "kill", "chown", "sys_chroot")
# All of these run in the new namespaces: $root is the root, then come pairs of what is bound where,
# `--`, and the agent.
_BINDS = """
while [ "$1" != -- ]; do
    mount --rbind "$1" "$root$2"
    mount -o remount,bind,ro,nosuid,nodev "$root$2"
    shift 2
done
shift
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
for name in keys key-users; do
    [ ! -e "$root/proc/$name" ] || mount --bind /dev/null "$root/proc/$name"
done
mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs "$root/run"
mount -t tmpfs -o nosuid,noexec,mode=755 tmpfs "$root/dev"
"""
_REST = """
mkdir -m 1777 "$root/dev/shm"
mkdir "$root/dev/pts"
mount -t devpts -o nosuid,noexec,newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
for name in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do
    ln -s "/proc/self/${name#*:}" "$root/dev/${name%:*}"
done
hostname sandbox
"""
_AS_ROOT = f"""
root=$1; shift
{_BINDS}
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "$root/dev/${{device%:*}}" c 1 "${{device#*:}}"
done
mknod -m 666 "$root/dev/tty" c 5 0
{_REST}
exec setpriv --inh-caps=-all --bounding-set="$POWERS" chroot "$root" "$@"
"""
# The powers of a user namespace end at its mounts. The agent takes them from every program.
_AS_USER = f"""
root=$1; lower=$2; upper=$3; shift 3
mount --rbind "$lower" "$root"
mount -o remount,bind,ro "$root"
for name in root tmp; do mount --bind "$upper/$name" "$root/$name"; done
{_BINDS}
for device in null zero full random urandom tty; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
{_REST}
exec chroot "$root" "$@"
"""


class Namespaces(Walls):
    """Starts a box with the tools that every Linux has."""

    programs: tuple[str, ...] = ("unshare", "setpriv", "chroot", "mount", "mknod", "hostname")

    def __init__(self) -> None:
        lacking = [name for name in self.programs if shutil.which(name, path=_PATH) is None]
        if lacking:
            raise Unsupported(f"there is no {', '.join(lacking)} on this machine")

    def words(self, build: Build) -> list[str]:
        return _unshare(build, [], _AS_ROOT, [str(build.volume.merged)])

    def own_users(self, build: Build) -> bool:
        return False

    def environ(self, build: Build) -> Mapping[str, str]:
        names = _POWERS if build.network else (*_POWERS, "net_admin")  # of a network of its own
        powers = ",".join(["-all", *(f"+{name}" for name in names)])
        return {"PATH": _PATH, "POWERS": powers, **_loopback(build), **build.root.environ}


class UserNamespaces(Namespaces):
    """The same for somebody who is not root. Raises Unsupported where that is not allowed."""

    programs = ("unshare", "chroot", "mount", "hostname")
    _USER = ("--user", "--map-current-user", "--keep-caps")

    def __init__(self) -> None:
        super().__init__()
        trial = ("unshare", *self._USER, "--mount", "--pid", "--net", "--fork", "--propagation")
        mounts = "mount -t tmpfs tmpfs /mnt && mount -t proc proc /proc"
        tried = run(
            (*trial, "private", "/bin/sh", "-euc", mounts),
            seconds=_PROBE_SECONDS,
            environ={"PATH": _PATH},
        )
        if not tried.succeeded:
            raise Unsupported(f"user namespaces are not allowed here: {tried.reason()}")

    def words(self, build: Build) -> list[str]:
        root = build.folder / "root"
        root.mkdir(exist_ok=True)
        places = [str(root), str(build.root.lower), str(build.volume.upper)]
        return _unshare(build, self._USER, _AS_USER, places)

    def own_users(self, build: Build) -> bool:
        return True

    def environ(self, build: Build) -> Mapping[str, str]:
        return {"PATH": _PATH, **_loopback(build), **build.root.environ}


def _unshare(build: Build, more: Sequence[str], script: str, places: Sequence[str]) -> list[str]:
    kinds = ["--mount", "--pid", "--ipc", "--uts", *([] if build.network else ["--net"])]
    start = ["unshare", *more, *kinds, "--fork", "--kill-child", "--propagation", "private"]
    pairs = [each for mount in _mounts(build) for each in mount]
    return [*start, "/bin/sh", "-euc", script, "sh", *places, *pairs, "--", *build.root.agent]


def _loopback(build: Build) -> Mapping[str, str]:
    """A new network has a loopback that is down. The agent brings it up: `ip` is not everywhere."""
    return {} if build.network else {"LOOPBACK": "lo"}


def _mounts(build: Build) -> list[tuple[str, str]]:
    found = [(mount.source, mount.target) for mount in build.root.mounts]
    if build.network and os.path.exists("/etc/resolv.conf"):
        found.append((os.path.realpath("/etc/resolv.conf"), "/etc/resolv.conf"))
    return found
