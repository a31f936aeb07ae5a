"""Asking a forked child: nothing that it does reaches the session."""

from __future__ import annotations

import gc
import os
import signal
import time
import warnings
from collections.abc import Callable

from holdfast.model.readiness import readable
from holdfast.session.worker.forks import end_teams
from holdfast.session.worker.parent import end_with

_LATE = 5.0  # seconds after its time until the child ends by itself


def ask(work: Callable[[int], None], deadline: float, patience: float | None = None) -> bytes:
    """What `work` writes to the descriptor that it is given, until it ends or its time is up; also
    when it wrote nothing for so many seconds of `patience`. Raises OSError without a child.

    A child has none of this process's other threads, but their locks, which nobody gives back.
    """
    read, write = os.pipe()
    end_teams()
    parent = os.getpid()
    try:
        with warnings.catch_warnings():  # Python 3.12 warns of those locks
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except BaseException:
        os.close(read)
        os.close(write)
        raise
    if child == 0:
        _work(work, write, parent, deadline)
    os.close(write)
    try:
        return _read(read, deadline, patience)
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _work(work: Callable[[int], None], write: int, parent: int, deadline: float) -> None:
    try:
        # Whoever made it may be killed meanwhile, and nobody else would end it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, deadline + _LATE)
        if not end_with(parent):
            return
        gc.disable()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        work(write)
    finally:
        os._exit(0)


def _read(fd: int, deadline: float, patience: float | None) -> bytes:
    data = bytearray()
    end = time.monotonic() + deadline
    while (left := end - time.monotonic()) > 0:
        if not readable([fd], left if patience is None else min(left, patience)):
            break
        piece = os.read(fd, 1 << 16)
        if not piece:
            break
        data += piece
    return bytes(data)
