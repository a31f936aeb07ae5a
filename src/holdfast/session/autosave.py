"""When an automatic checkpoint is due: after each cell, or every so many seconds.

Only a session that ran something since its last checkpoint has anything to save.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Automatic = Literal["cell"] | float | None


class Autosave:
    """Knows when; whoever made it does the saving."""

    def __init__(self, every: Automatic, save: Callable[[], Awaitable[None]]) -> None:
        self._every = every
        self._save = save
        self._changed = False
        self.owed: str | None = None  # the reason of one that was put off
        self._holds = 0
        self._clock: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Whether a transaction is open."""
        return self._holds > 0

    @property
    def due(self) -> bool:
        """Whether there is something that an automatic checkpoint would save."""
        return self._every is not None and self._changed and not self.held

    def ran(self) -> bool:
        """A cell has ended; whether a checkpoint follows it at once."""
        self._changed = True
        return self._every == "cell" and not self.held

    def put_off(self, reason: str) -> None:
        """There is no room for it now; a later one has all that it would have had."""
        self.owed = reason

    def saved(self) -> None:
        """All that ran so far is in a checkpoint."""
        self._changed = False
        self.owed = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """No automatic checkpoint in this block."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    def start(self) -> None:
        """Let the time count, where it does."""
        if isinstance(self._every, (int, float)) and (self._clock is None or self._clock.done()):
            self._clock = asyncio.create_task(self._tick(self._every))

    def stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()

    async def catch_up(self) -> None:
        """After a hold: save what it kept from being saved."""
        if self._every == "cell" and self.due:
            await self._save()

    async def _tick(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            if self.due:
                await self._save()
