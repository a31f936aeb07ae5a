"""Chores: work in the background that nobody waits for, until the server stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from holdfast.model.errors import HoldfastError

log = logging.getLogger("holdfast.sandbox")


class Chores:
    """What is being done beside everything else."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Awaitable[None]) -> None:
        task = asyncio.create_task(_done(work), name="holdfast chore")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, seconds: float) -> None:
        """Let what is under way come to its end, as far as the time goes."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()


async def _done(work: Awaitable[None]) -> None:
    try:
        await work
    except (HoldfastError, OSError):
        log.exception("work in the background failed")
