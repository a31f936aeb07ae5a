"""What may be mounted: overlay file systems, FUSE, and user namespaces to mount in."""

from __future__ import annotations

import ctypes.util
import errno
import os
import tempfile
from pathlib import Path

from holdfast.runtime.command import Outcome, run
from holdfast.runtime.finding import Finding, Level, Status

_SECONDS = 10.0

# A setting, the value with which it forbids user namespaces, and the one that allows them.
_SWITCHES = (
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)

# Runs in a mount namespace of its own on a tmpfs of its own, so nothing is left behind.
_OVERLAY = (
    'set -e; cd "$1"; mount -t tmpfs none .; cd "$1"; mkdir lower upper work merged;'
    " echo below >lower/file;"
    " mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged;"
    " echo above >merged/file; grep -q below lower/file; grep -q above upper/file"
)

# Nobody answers behind this mount: that the kernel accepts it is what is asked.
_FUSE = (
    "set -e; exec 3<>/dev/fuse;"
    ' mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 none "$1"'
)


def probe_overlay() -> Finding:
    """Mount an overlay, write through it, and see the lower layer unchanged."""
    return judge_overlay(in_own_mounts(_OVERLAY))


def in_own_mounts(script: str) -> Outcome:
    """Run a script with mounts of its own, as root or as what a user namespace makes of us.

    Its first argument is a folder it may mount over.
    """
    namespaces = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    argv = ("unshare", *namespaces, "sh", "-c", script, "sh", tempfile.gettempdir())
    return run(argv, seconds=_SECONDS)


def judge_overlay(outcome: Outcome) -> Finding:
    levels = (Level.SANDBOX, Level.CONTAINER)
    if outcome.succeeded:
        detail = "mounted, written through, lower layer untouched"
        return Finding("overlayfs", Status.OK, detail, enables=levels)
    mends = "modprobe overlay" if "unknown filesystem" in outcome.stderr else None
    return Finding("overlayfs", Status.BROKEN, outcome.reason(), mends=mends, enables=levels)


def probe_user_namespaces() -> Finding:
    """Become root in a new user namespace."""
    argv = ("unshare", "--user", "--map-root-user", "sh", "-c", 'test "$(id -u)" = 0')
    return judge_user_namespaces(run(argv, seconds=_SECONDS), closed_switches())


def closed_switches(root: Path = Path("/proc/sys")) -> list[str]:
    """The kernel's settings that forbid user namespaces here, as the commands that open them."""
    closed = []
    for setting, forbids, opens in _SWITCHES:
        file = root / setting.replace(".", "/")
        if file.exists() and file.read_text().strip() == forbids:
            closed.append(f"sysctl -w {setting}={opens}")
    return closed


def judge_user_namespaces(outcome: Outcome, closed: list[str]) -> Finding:
    levels = (Level.SANDBOX,)
    if outcome.succeeded:
        detail = "a new one was made and entered"
        return Finding("user namespaces", Status.OK, detail, enables=levels)
    detail = f"{outcome.reason()}; sandboxes without root need them"
    mends = "; ".join(closed) or None
    return Finding("user namespaces", Status.LIMITED, detail, mends=mends, enables=levels)


def probe_fuse(device: Path = Path("/dev/fuse")) -> Finding:
    """Open the device, mount with it, and look for the library that would serve the mount."""
    library = ctypes.util.find_library("fuse3")
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return judge_fuse(library, f"{device}: {error.strerror}", error.errno)
    outcome = in_own_mounts(_FUSE)
    return judge_fuse(library, None if outcome.succeeded else outcome.reason())


def judge_fuse(library: str | None, trouble: str | None, number: int | None = None) -> Finding:
    """FUSE serves mounted checkpoints and the power-loss tests; no level depends on it."""
    if trouble is not None:
        if number == errno.ENOENT:
            return Finding("fuse", Status.MISSING, trouble, mends="modprobe fuse")
        if number in (errno.EACCES, errno.EPERM):
            return Finding("fuse", Status.LIMITED, f"{trouble}; only root may mount here")
        return Finding("fuse", Status.BROKEN, trouble)
    if library is None:
        detail = "mounting works, but libfuse3 is not installed"
        return Finding("fuse", Status.MISSING, detail, mends="apt-get install libfuse3-3 fuse3")
    return Finding("fuse", Status.OK, f"a file system was mounted, {library}")
