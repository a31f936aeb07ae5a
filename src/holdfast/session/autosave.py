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
        # Cells that have ended: all of them, those in what was captured, and in what was saved.
        self._ran = self._captured = self._saved = 0
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
        return self._every is not None and self._ran > self._captured and not self.held

    @property
    def late(self) -> bool:
        """Whether that should have been saved by now: it was put off, or did not come to disk."""
        return self.due and (self.owed is not None or self._every == "cell")

    def ran(self) -> bool:
        """A cell has ended; whether a checkpoint follows it at once."""
        self._ran += 1
        return self._every == "cell" and not self.held

    def put_off(self, reason: str) -> None:
        """There is no room for it now; a later one has all that it would have had."""
        self.owed = reason

    def captured(self) -> int:
        """All that ran so far is on its way into a checkpoint; gives what that is called."""
        self._captured = self._ran
        self.owed = None
        return self._ran

    def saved(self, what: int) -> None:
        """What was captured is in a checkpoint, on disk."""
        self._saved = max(self._saved, what)
        self._captured = max(self._captured, what)

    def missed(self) -> None:
        """What was captured did not come to disk: it is due again, until something that was
        captured later does."""
        self._captured = self._saved

    def settle(self) -> None:
        """There is nothing to save: all is as in a checkpoint, or it is lost and was told."""
        self.saved(self.captured())

    def differs(self) -> None:
        """The session is not what its head says, though no cell has run since: that is due."""
        self._ran += 1

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
