"""Chores: work in the background that nobody waits for, until the server stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Coroutine, Iterator

log = logging.getLogger("holdfast.sandbox")
# Whoever was given a sandbox, or gave one back, is about to do more: what is not for them waits.
REST_SECONDS = 0.5
LONGEST_REST_SECONDS = 3.0  # where there is always somebody


class Chores:
    """What is being done beside everything else."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._moving = 0
        self._moved = float("-inf")

    @contextlib.contextmanager
    def moving(self) -> Iterator[None]:
        """While a sandbox is put away or brought back, somebody waits for every millisecond."""
        self._moving += 1
        try:
            yield
        finally:
            self._moving -= 1
            self._moved = time.monotonic()

    async def rest(self) -> None:
        """Wait a moment, and then for those who move a sandbox, but not for ever."""
        began = time.monotonic()
        while not self._stopping.is_set():
            now = time.monotonic()
            since = now if self._moving else max(began, self._moved)
            until = min(since + REST_SECONDS, began + LONGEST_REST_SECONDS)
            if now >= until:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until - now):
                    await self._stopping.wait()

    def begin(self, work: Awaitable[None]) -> None:
        self._add(_done(work))

    def begin_later(self, work: Awaitable[None]) -> None:
        """After a rest: clearing away takes the disk and the processor of those who work."""
        self._add(self._rested(work))

    def _add(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="holdfast chore")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _rested(self, work: Awaitable[None]) -> None:
        await self.rest()
        await _done(work)

    async def finish(self, seconds: float) -> None:
        """Let what is under way come to its end, as far as the time goes."""
        self._stopping.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()


async def _done(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception:  # nobody else would ever hear of it
        log.exception("work in the background failed")
