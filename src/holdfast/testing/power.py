"""Power: a mounted `lossfs` with a switch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.testing.lossfs import CONTROL, Loss

_PATIENCE = 60.0  # seconds until it is mounted


class Power:
    """The switch of one mounted file system."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def operations(self) -> int:
        """How many changing operations there were since the last start."""
        return operations(self.root)

    @property
    def digest(self) -> str:
        """The same whenever the same names, links and bytes are there."""
        return os.getxattr(self.root, f"{CONTROL}digest").decode()

    def save(self, name: str) -> None:
        """Remember everything there is under a name."""
        self._control("save", name)

    def load(self, name: str = "") -> None:
        """Begin again with what was saved, or with nothing."""
        self._control("load", name)

    def cut_at(self, operation: int) -> None:
        """Let the power go just before that many changing operations from now."""
        self._control("cut_at", str(operation))

    def record(self) -> None:
        """From now on, until the next start, `keep` before each changing operation, under its
        number. Whatever was kept before is forgotten."""
        self._control("record", "")

    def keep(self, name: str) -> None:
        """Remember everything there is, with what is not durable yet, under a name."""
        self._control("keep", name)

    def go_back(self, name: str) -> None:
        """Begin again with what was kept: as if only its user had died, nothing is lost yet."""
        self._control("return", name)

    def rot(self, name: str = "") -> None:
        """From now on, let files of a name lose a bit when a folder that they are in is renamed:
        a disk that keeps something else than it was given. Without a name no more."""
        self._control("rot", name)

    def resume(self) -> None:
        """Go on as if not the power had gone, but only whoever used it: nothing is lost yet."""
        self._control("resume", "")

    def cut(self, loss: Loss, seed: int = 0) -> None:
        """Lose what a power cut loses, and switch on again."""
        self._control("cut", f"{loss} {seed}")

    def _control(self, name: str, value: str) -> None:
        os.setxattr(self.root, f"{CONTROL}{name}", value.encode())


def operations(root: Path | str) -> int:
    """How many changing operations there were since the last start; for who works there, too."""
    return int(os.getxattr(root, f"{CONTROL}operations"))


# Of programs that serve file systems few are known to be on this machine and nowhere else. This one
# is, too, and locks hold there, so it may go by the name of one of them.
_KNOWN_AS_LOCAL = "fuse-overlayfs"


@contextmanager
def powered(mountpoint: Path, *, leases: bool = False) -> Iterator[Power]:
    """Mount a forgetful file system for the time of the block; with leases, as one of those on
    which a store gives them."""
    mountpoint.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-m", "holdfast.testing.lossfs", str(mountpoint)]
    if leases:
        program.append(_KNOWN_AS_LOCAL)
    words = mountpoint.with_suffix(".log")  # what the server says; it is not quiet
    with words.open("wb") as log, subprocess.Popen(program, stderr=log) as server:
        try:
            _await_mount(mountpoint, server)
            yield Power(mountpoint)
        finally:
            # Lazily, because a test that failed may have left a file open.
            subprocess.run(["fusermount3", "-u", "-z", str(mountpoint)], check=False)
            try:
                server.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                server.kill()


def _await_mount(mountpoint: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not os.path.ismount(mountpoint):
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                "lossfs could not be mounted: it needs /dev/fuse, libfuse3 and fusermount3;"
                " `make setup-test` installs them"
            )
        time.sleep(0.01)
