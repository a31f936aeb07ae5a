"""Programs that somebody who is not root runs, with a Holdfast that may be in root's own home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import blake3

import holdfast

NOBODY = 65534
# What the packages are in need not be open to everybody; where they are mounted is.
_RUN = """
folder=$1; shift
mount --bind "$1" "$folder/holdfast"; shift
mount --bind "$1" "$folder/others"; shift
exec setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
"""


def interpreter() -> str:
    """A Python of this version that nobody may run: the one in use may be in root's own home."""
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    names = (sys.executable, os.path.realpath(sys.executable), system)
    become = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    for name in names:
        tried = subprocess.run(
            # Not at once: what setpriv itself runs is found with root's powers still.
            [*become, "sh", "-c", 'exec "$0" -c pass', name],
            cwd="/",
            capture_output=True,
            check=False,
        )
        if tried.returncode == 0:
            return name
    raise AssertionError(f"nobody can run none of {names}")


@contextmanager
def folder_of_nobody(name: str) -> Iterator[Path]:
    """Where pytest's own folders are, only root may look."""
    folder = Path("/tmp") / f"holdfast-nobody-{os.getpid()}-{name}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def run_as_nobody(
    folder: Path, *arguments: str, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run Python as nobody, in a folder that is given to them with all that is in it."""
    assert os.geteuid() == 0, "this test needs root, to become somebody else"
    places = [folder / "holdfast", folder / "others"]
    for each in places:
        each.mkdir(exist_ok=True)
    for each in (folder, *folder.iterdir()):
        os.chown(each, NOBODY, NOBODY)
    packages = [str(Path(str(module.__file__)).parents[1]) for module in (holdfast, blake3)]
    own_mounts = ("unshare", "--mount", "--propagation", "private", "sh", "-euc", _RUN, "sh")
    return subprocess.run(
        [*own_mounts, str(folder), *packages, interpreter(), *arguments],
        cwd=folder,
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
            "PYTHONPATH": ":".join(map(str, places)),
        },
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
