"""Windows: how much of each process's output a client takes before it has read more."""

from __future__ import annotations

import asyncio
import math


class Windows:
    """Of one connection. What it says nothing about may be sent as a whole."""

    def __init__(self) -> None:
        self._until: dict[str | None, int] = {}
        self._changed = asyncio.Event()

    def put(self, process_id: str | None, until: int | None) -> None:
        if until is None:
            self._until.pop(process_id, None)
        else:
            self._until[process_id] = until
        self._changed.set()
        self._changed = asyncio.Event()

    async def open(self, process_id: str | None, offset: int) -> None:
        """Wait until a client that has seen so much may be sent the next piece."""
        while offset >= self._until.get(process_id, math.inf):
            await self._changed.wait()
