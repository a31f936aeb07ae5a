"""Captures on their way into the store, beside the session that goes on.

They are committed in the order in which they were captured, and only a few may be on their way:
then the next capture waits, or, where nobody asked for it, is put off. A failure that nobody waits
for is raised by the next call, and at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from holdfast.model.errors import CaptureFailed, HoldfastError

_T = TypeVar("_T")

MOST = 2  # on their way at once: one is written while the next is captured


class Saving:
    """What is on its way."""

    def __init__(self) -> None:
        self._order = asyncio.Lock()
        self._room = asyncio.Semaphore(MOST)
        self._tasks: set[asyncio.Task[None]] = set()
        self._long = 0  # how many of them take long
        self.on_room: Callable[[], None] | None = None  # called when one has arrived
        self._failure: BaseException | None = None

    @property
    def waiting(self) -> int:
        """How many are on their way."""
        return len(self._tasks)

    @property
    def crowded(self) -> bool:
        """Whether there is no room, and will be none for a time that somebody would feel."""
        return self._long > 0 and self._room.locked()

    async def room(self) -> None:
        """Wait until one more may be on its way. Whoever calls it begins one, or gives it back."""
        await self._room.acquire()

    def give_back(self) -> None:
        """There was nothing to save after all."""
        self._room.release()

    def begin(self, save: Callable[[], _T], long: bool = False) -> asyncio.Future[_T]:
        """Save in a thread, after everything that was begun before. Needs `room`."""
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._long += long
        task = asyncio.create_task(self._save(save, done, long))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return done

    def leave(self, done: asyncio.Future[_T]) -> None:
        """Nobody waits for it: keep its failure for the next call."""
        done.add_done_callback(self._note)

    def failed(self, error: BaseException) -> None:
        """Keep a failure for the next call."""
        if self._failure is None:
            self._failure = error

    def check(self) -> None:
        """Raise what went wrong since the last call, once."""
        failure, self._failure = self._failure, None
        if failure is None:
            return
        if isinstance(failure, HoldfastError):
            failure.add_note("in a checkpoint that was made beside the running session")
            raise failure
        raise CaptureFailed(
            f"a checkpoint beside the running session failed: {failure}",
            hint="the session itself is as it was",
        ) from failure

    async def settled(self) -> None:
        """Wait until nothing is on its way."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _save(self, save: Callable[[], _T], done: asyncio.Future[_T], long: bool) -> None:
        try:
            async with self._order:
                result = await asyncio.to_thread(save)
        except Exception as error:  # noqa: BLE001  # for whoever waits, or the next call
            done.set_exception(error)
        else:
            done.set_result(result)
        finally:
            self._long -= long
            self._room.release()
            if self.on_room is not None:
                self.on_room()

    def _note(self, done: asyncio.Future[_T]) -> None:
        error = done.exception()
        if error is not None:
            self.failed(error)
