"""Waiting for descriptors, whatever their numbers: `select` takes none above 1023, which a server
with many connections soon has."""

from __future__ import annotations

import math
import select
from collections.abc import Iterable


def readable(fds: Iterable[int], seconds: float | None) -> list[int]:
    """Those that can be read, or are at their end; none when that takes longer."""
    waiting = select.poll()
    for fd in fds:
        waiting.register(fd, select.POLLIN)
    return [fd for fd, _ in waiting.poll(None if seconds is None else math.ceil(seconds * 1000))]
