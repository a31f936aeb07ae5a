"""A few bodies that stand ready, so that a new sandbox need not wait for its engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.model.errors import HoldfastError
from holdfast.sandbox.body import Body

log = logging.getLogger("holdfast.sandbox")


class Pool:
    """Keeps so many bodies ready; a body that is taken is replaced in the background."""

    def __init__(
        self,
        make: Callable[[], Awaitable[Body]],
        size: int,
        rest: Callable[[], Awaitable[None]],
    ) -> None:
        self._make = make
        self._rest = rest
        self._size = size
        self._ready: list[Body] = []
        self._filling: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    def take(self) -> Body | None:
        """A body that is ready and alive, if there is one."""
        taken: Body | None = None
        while self._ready and taken is None:
            body = self._ready.pop(0)
            taken = None if body.line.gone.done() else body
        self.fill(rested=True)
        return taken

    def fill(self, *, rested: bool = False) -> None:
        """Make what is missing, one after the other, in the background, after a rest."""
        if self._closed or len(self._ready) >= self._size:
            return
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._fill(rested), name="holdfast pool")

    async def _fill(self, rested: bool) -> None:
        if rested:
            await self._rest()
        while len(self._ready) < self._size and not self._closed:
            try:
                self._ready.append(await self._make())
            except HoldfastError as error:
                # Whoever creates a sandbox next meets the same trouble, and is told.
                log.warning("no sandbox could be made ready: %s", error)
                return

    async def close(self) -> list[Body]:
        """Stop filling; the bodies that were left are the caller's to end."""
        self._closed = True
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
        left, self._ready = self._ready, []
        return left
