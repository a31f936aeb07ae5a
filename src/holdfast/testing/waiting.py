"""Waiting for something to be so: as long as a busy machine may take, and no longer than needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_PATIENCE = 60.0  # seconds
_PAUSE = 0.02


def eventually(condition: Callable[[], bool], what: str, seconds: float = _PATIENCE) -> None:
    """Wait until something is so; raises AssertionError when it never is."""
    end = time.monotonic() + seconds
    while not condition():
        _check(end, what, seconds)
        time.sleep(_PAUSE)


async def until(condition: Callable[[], bool], what: str, seconds: float = _PATIENCE) -> None:
    """The same on an event loop, which goes on meanwhile."""
    end = time.monotonic() + seconds
    while not condition():
        _check(end, what, seconds)
        await asyncio.sleep(_PAUSE)


def _check(end: float, what: str, seconds: float) -> None:
    if time.monotonic() > end:
        raise AssertionError(f"within {seconds:g} s it was never so that {what}")
