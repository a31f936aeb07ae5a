"""Captures on their way into the store, beside the session that goes on.

They are committed in the order in which they were captured, and only a few may be on their way:
then the next capture waits, or, where nobody asked for it, is put off. A failure that nobody waits
for is raised by the next call, and at the end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple, TypeVar

from holdfast.model.errors import CaptureFailed, HoldfastError

_T = TypeVar("_T")

MOST = 2  # on their way at once: one is written while the next is captured


class _Way(NamedTuple):
    save: Callable[[], Any]  # in the context of whoever began it
    done: asyncio.Future[Any]
    long: bool


class Saving:
    """What is on its way."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(MOST)
        self._line: deque[_Way] = deque()  # the first of them is being saved
        self._long = 0  # how many of them take long
        self.on_room: Callable[[], None] | None = None  # called when one has arrived
        self._failure: BaseException | None = None

    @property
    def waiting(self) -> int:
        """How many are on their way."""
        return len(self._line)

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
        self._line.append(_Way(partial(copy_context().run, save), done, long))
        if len(self._line) == 1:
            self._next()
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
        while self._line:
            await asyncio.wait({way.done for way in self._line})

    def _next(self) -> None:
        # Not as a task: each of its steps would be another round of the loop.
        work = asyncio.get_running_loop().run_in_executor(None, self._line[0].save)
        work.add_done_callback(self._arrived)

    def _arrived(self, work: asyncio.Future[Any]) -> None:
        way = self._line.popleft()
        if (error := work.exception()) is not None:
            way.done.set_exception(error)  # for whoever waits, or the next call
        else:
            way.done.set_result(work.result())
        self._long -= way.long
        self._room.release()
        if self._line:
            self._next()
        if self.on_room is not None:
            self.on_room()

    def _note(self, done: asyncio.Future[_T]) -> None:
        error = done.exception()
        if error is not None:
            self.failed(error)
