"""Output as it comes, told as progress: how much there is, and its last line."""

from __future__ import annotations

import time

from holdfast.server.mcp.contract import Progress

TICK = 1.0  # seconds between two reports
LONGEST = 200  # characters of a line


class Follower:
    """Hears what is written, in whatever pieces it comes."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._written = 0
        self._tail = ""
        self._due = 0.0

    async def heard(self, text: str) -> None:
        self._written += len(text)
        self._tail = (self._tail + text)[-2 * LONGEST :]
        line = self._tail.rstrip("\n").rpartition("\n")[2][:LONGEST]
        if line and time.monotonic() >= self._due:
            self._due = time.monotonic() + TICK
            await self._progress(self._written, line)
