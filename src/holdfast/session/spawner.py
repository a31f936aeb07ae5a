"""Starting processes from one thread that lives as long as the host.

The kernel kills a worker when the *thread* that started it ends (PR_SET_PDEATHSIG), and
the thread that runs an event loop may end long before the host does.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.model.once import once


@once
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-spawner")


def spawn(
    arguments: Sequence[str],
    *,
    stdout: int,
    stderr: int,
    pass_fds: Sequence[int],
    env: Mapping[str, str],
    cwd: Path | None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that a Ctrl-C at the terminal is not for it."""
    start: Callable[[], subprocess.Popen[bytes]] = lambda: subprocess.Popen(  # noqa: E731
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_fds,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    return _thread().submit(start).result()
