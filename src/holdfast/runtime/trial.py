"""A trial container: the smallest OCI bundle in which an engine can show that it works.

Its root has the host's /usr, read-only, and nothing else; it has no network and writes
nothing. Whatever a trial started is gone when it ends, whether the trial went well or not.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.mounts import mounts_here
from holdfast.runtime.command import Outcome, run

STEP_SECONDS = 20.0
_ALIASES = ("bin", "sbin", "lib", "lib32", "lib64")


@dataclass(frozen=True, slots=True)
class Trial:
    """One container of one engine, in a folder of its own."""

    engine: tuple[str, ...]
    folder: Path
    name: str
    environ: Mapping[str, str]

    @property
    def images(self) -> Path:
        return self.folder / "images"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def command(self, *words: str, capture: bool = True) -> Outcome:
        """Run one of the engine's subcommands on this trial's own state."""
        argv = (*self.engine, "--root", str(self.folder / "state"), *words)
        return run(argv, seconds=STEP_SECONDS, environ=self.environ, capture=capture)


def bundle_config(args: Sequence[str], mounted: Sequence[str]) -> dict[str, object]:
    """An OCI configuration that runs `args` with these host folders bound read-only."""
    binds = [
        {"destination": f"/{name}", "type": "bind", "source": f"/{name}", "options": ["bind", "ro"]}
        for name in mounted
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(args),
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": False},
        "hostname": "trial",
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, *binds],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")]
        },
    }


def write_bundle(folder: Path, args: Sequence[str]) -> None:
    """Lay out `rootfs` and `config.json` in `folder`.

    Where the host has a link (`/lib` to `usr/lib`), the root has the same link: criu cannot
    restore a mount whose mountpoint is one.
    """
    root = folder / "rootfs"
    (root / "proc").mkdir(parents=True)
    mounted = ["usr"]
    for alias in _ALIASES:
        host = Path("/", alias)
        if host.is_symlink():
            (root / alias).symlink_to(os.readlink(host).lstrip("/"))
        elif host.is_dir():
            mounted.append(alias)
    for name in mounted:
        (root / name).mkdir()
    config = json.dumps(bundle_config(args, mounted))
    (folder / "config.json").write_text(config, encoding="utf-8")


@contextmanager
def trial(
    engine: Sequence[str], args: Sequence[str], environ: Mapping[str, str]
) -> Iterator[Trial]:
    """A prepared trial; afterwards its container is deleted, then its folder."""
    folder = Path(tempfile.mkdtemp(prefix=f"holdfast-trial-{os.getpid()}-"))
    it = Trial(tuple(engine), folder, f"trial-{uuid.uuid4().hex[:12]}", environ)
    try:
        write_bundle(folder, args)
        for place in (folder / "state", it.images, it.work):
            place.mkdir()
        yield it
    finally:
        # An engine that knows no such container says so, and is right.
        it.command("delete", "--force", it.name, capture=False)
        clear(folder)


def clear(folder: Path) -> None:
    """Detach what a killed engine left mounted below a folder, then delete the folder.

    If something stays mounted the folder stays too: deleting would reach through the mount.
    """
    detach(folder)
    if not mounts_below(folder):
        shutil.rmtree(folder, ignore_errors=True)


def detach(folder: Path) -> None:
    """Unmount whatever is mounted inside a folder, the last one first."""
    for place in reversed(mounts_below(folder)):
        run(("umount", "--lazy", place), seconds=STEP_SECONDS)


def mounts_below(folder: Path) -> list[str]:
    """The mountpoints inside a folder, in the order in which they were mounted."""
    return [mount.point for mount in mounts_here() if mount.point.startswith(f"{folder}/")]
