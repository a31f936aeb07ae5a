"""Lazy restore: a container runs before its memory has been read; pages come when they are touched.

CRIU's daemon serves them from the images and brings the rest by itself. It has opened every file
that it needs when the restore is done, so the images may go then; and it is in no container's
cgroup, so it outlives the command and cannot be frozen with the container.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.model.errors import Conflict
from holdfast.oci import keeper
from holdfast.oci.engine import EngineFailed, Runc, kill_tree
from holdfast.oci.memory.pagemap import is_increment, memory_bytes
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
    from holdfast.oci.memory.whole import clone_whole

    private_folder(scratch)
    return scratch if clone_whole(memory, scratch) else None


@contextmanager
def serving(
    runc: Runc, memory: Path, work: Path, container_id: str, status: Path
) -> Iterator[Process]:
    """Have a daemon ready to serve pages for a restore in `work`, and somebody who sees how it ends
    (keeper.py). When the restore fails, both are ended; otherwise they go on by themselves. Raises
    EngineFailed."""
    status.unlink(missing_ok=True)
    stop = [runc.program, *runc.globals, "kill", container_id, "KILL"]
    serve = ["lazy-pages", "--images-dir", str(memory), "--work-dir", str(work)]
    serve = [runc.criu(), *serve, "--log-file", "lazy.log", "-v1"]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__, str(status), *stop, "--", *serve],
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


def await_pages(daemon: Process | None, status: Path, seconds: float) -> None:
    """Wait until all pages are there. Before that nothing can be dumped; raises Conflict when they
    do not come, and when nobody knows that they have."""
    if daemon is None:
        return
    end = time.monotonic() + seconds
    while daemon.alive:
        if time.monotonic() > end:
            raise Conflict("its memory has not been read back yet", hint="try again later")
        time.sleep(0.02)
    if not status.exists() or status.read_text().strip() != "0":
        raise Conflict(
            "its memory was not read back: what brought it has ended too early",
            hint="its last checkpoint is whole: remove the container and create it again",
        )
