"""Lazy restore: a container runs before its memory has been read; pages come when they are touched.

CRIU's daemon serves them from the images and brings the rest by itself. It has opened every file
that it needs when the restore is done, so the images may go then; and it is nobody's child and in
no container's cgroup, so it outlives the command and cannot be frozen with the container.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.oci.engine import EngineFailed, Runc, kill_tree
from holdfast.oci.memory.clones import clone_whole
from holdfast.oci.memory.increment import is_increment, memory_bytes
from holdfast.oci.policy import Policy
from holdfast.oci.private import private_folder
from holdfast.oci.state import Process

_SOCKET = "lazy-pages.socket"
_START_SECONDS = 10.0


def is_worth_it(memory: Path, policy: Policy, mode: str) -> bool:
    """Whether the images are near, and large enough for waiting to be felt."""
    if policy.lazy == "never" or mode != "local":
        return False  # what is on another machine, or on its way, may be gone when it is needed
    return memory_bytes(memory) >= policy.lazy_bytes


def servable(memory: Path, scratch: Path) -> Path | None:
    """Images that a daemon can serve. CRIU's own does not serve pages that are in a parent, and
    whoever touched one would wait for ever; so an increment is made whole first, in `scratch`,
    where the file system can do that without copying. None: where it cannot."""
    if not is_increment(memory):
        return memory
    private_folder(scratch)
    return scratch if clone_whole(memory, scratch) else None


@contextmanager
def serving(runc: Runc, memory: Path, work: Path) -> Iterator[Process]:
    """Have a daemon ready to serve pages for a restore in `work`. When the restore fails, it is
    ended; otherwise it goes on by itself. Raises EngineFailed."""
    words = ["lazy-pages", "--images-dir", str(memory), "--work-dir", str(work)]
    process = subprocess.Popen(
        [runc.criu(), *words, "--log-file", "lazy.log", "-v1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env=runc.environ,
    )
    try:
        _await(work / _SOCKET, process)
        daemon = Process.of(process.pid)
        if daemon is None:
            raise EngineFailed("the server of pages has ended")
        yield daemon
    except BaseException:
        kill_tree(process.pid)
        process.wait()
        raise


def _await(path: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while not path.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise EngineFailed("the server of pages did not start")
        time.sleep(0.002)


def await_pages(daemon: Process | None, seconds: float) -> bool:
    """Wait until all pages are there; whether they are. Before that nothing can be dumped."""
    end = time.monotonic() + seconds
    while daemon is not None and daemon.alive:
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
