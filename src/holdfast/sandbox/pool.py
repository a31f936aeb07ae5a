"""A few that stand ready, so that whoever needs one need not wait for an engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from holdfast.model.errors import HoldfastError, Unsupported
from holdfast.sandbox.chores import Chores

log = logging.getLogger("holdfast.sandbox")


class Ready(Protocol):
    """What may die while it stands ready."""

    @property
    def alive(self) -> bool: ...

    async def end(self) -> None: ...

    async def clear(self) -> None: ...


ReadyType = TypeVar("ReadyType", bound=Ready)


class Pool(Generic[ReadyType]):
    """Keeps so many ready; one that is taken is replaced in the background."""

    def __init__(
        self,
        make: Callable[[], Awaitable[ReadyType]],
        size: int,
        chores: Chores,
    ) -> None:
        self._make = make
        self._chores = chores
        self._size = size
        self._ready: list[ReadyType] = []
        self._filling: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    def take(self, fits: Callable[[ReadyType], bool] = lambda each: True) -> ReadyType | None:
        """One that is ready, alive and fits, if there is one."""
        for each in [each for each in self._ready if not each.alive]:
            self._ready.remove(each)
            self._chores.begin(over(each))
        taken = next(filter(fits, self._ready), None)
        if taken is not None:
            self._ready.remove(taken)
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
            await self._chores.rest()
        while len(self._ready) < self._size and not self._closed:
            try:
                self._ready.append(await self._make())
            except Unsupported as error:
                log.info("none is kept ready: %s", error)  # nor the next time
                self._size = 0
            except HoldfastError as error:
                # Whoever creates a sandbox next meets the same trouble, and is told.
                log.warning("no sandbox could be made ready: %s", error)
                return
            except Exception:
                log.exception("no sandbox could be made ready")
                return

    async def close(self) -> list[ReadyType]:
        """Stop filling; those that were left are the caller's to end."""
        self._closed = True
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
        left, self._ready = self._ready, []
        return left


async def over(each: Ready) -> None:
    """End one, and leave nothing of it."""
    await each.end()
    await each.clear()
