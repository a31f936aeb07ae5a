"""Asking a forked child: nothing that it does reaches the session."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable

from holdfast.model.readiness import readable


def ask(work: Callable[[int], None], deadline: float) -> bytes:
    """What `work` writes to the descriptor that it is given, until it ends or its time is up.

    Only for a process without other threads: a child has none of them, but their locks.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _work(work, write)
    os.close(write)
    try:
        return _read(read, deadline)
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _work(work: Callable[[int], None], write: int) -> None:
    try:
        gc.disable()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        work(write)
    finally:
        os._exit(0)


def _read(fd: int, deadline: float) -> bytes:
    data = bytearray()
    end = time.monotonic() + deadline
    while (left := end - time.monotonic()) > 0:
        if not readable([fd], left):
            break
        piece = os.read(fd, 1 << 16)
        if not piece:
            break
        data += piece
    return bytes(data)
