"""The process's open descriptors, looked at without changing anything about them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager


def descriptors() -> Iterator[tuple[int, os.stat_result]]:
    """All that are open, with what they lead to."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            yield fd, os.fstat(fd)
        except OSError:
            continue  # that of the listing itself


@contextmanager
def borrowed(fd: int) -> Iterator[socket.socket]:
    """A socket object for a descriptor that somebody else has."""
    blocking = os.get_blocking(fd)
    with socket.socket(fileno=os.dup(fd)) as found:
        os.set_blocking(fd, blocking)  # where sockets have a timeout by default, that changed it
        yield found
