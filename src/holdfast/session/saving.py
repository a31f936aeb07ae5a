"""Captures on their way into the store, beside the session that goes on.

They are committed in the order in which they were captured, and only a few may be on their way, of
large sessions one, since a copy of the process may come to need as much memory as that has: then
the next capture waits, or, where nobody asked for it, is put off. A failure that nobody waits
for is raised by the next call, and at the end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from holdfast.model.errors import CaptureFailed, HoldfastError
from holdfast.session.arriving import Coming
from holdfast.session.captured import StoodStill

_T = TypeVar("_T")

ENDED = "`async with session`, or shutdown(), waits until all is saved"
MOST = 2  # on their way at once: one is written while the next is captured


@dataclass(slots=True)
class _Way:
    save: Callable[[], Any]  # in the context of whoever began it
    done: asyncio.Future[Any]
    captured: Coming
    over: bool = False  # whether it was saved, or failed: known in the thread before the loop hears
    error: BaseException | None = None

    def go(self) -> Any:
        try:
            return self.save()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.over = True


class Saving:
    """What is on its way."""

    def __init__(self) -> None:
        self._line: deque[_Way] = deque()  # the first of them is being saved
        self.on_room: Callable[[], None] | None = None  # called when one has arrived
        self._failure: BaseException | None = None
        self._left: set[asyncio.Future[Any]] = set()  # that nobody waits for

    @property
    def waiting(self) -> int:
        """How many are on their way."""
        return len(self._line)

    @property
    def crowded(self) -> bool:
        """Whether there is no room, and will be none for a time that somebody would feel."""
        return self._full and any(way.captured.long for way in self._line)

    @property
    def _full(self) -> bool:
        return len(self._line) >= MOST or any(way.captured.heavy for way in self._line)

    async def room(self) -> None:
        """Wait until one more may be on its way; whoever calls it is the only one to begin one."""
        while self._full:
            await asyncio.wait({self._line[0].done})

    def begin(self, save: Callable[[], _T], captured: Coming) -> asyncio.Future[_T]:
        """Save what was captured in a thread, after everything that was begun before."""
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._line.append(_Way(partial(copy_context().run, save), done, captured))
        if len(self._line) == 1:
            self._next()
        return done

    def leave(self, done: asyncio.Future[_T]) -> None:
        """Nobody waits for it: keep its failure for the next call."""
        self._left.add(done)
        done.add_done_callback(self._note)

    def failed(self, error: BaseException) -> None:
        """Keep a failure for the next call."""
        if self._failure is None:
            self._failure = error

    def check(self) -> None:
        """Raise what went wrong since the last call, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise _told(failure)

    def lost(self) -> HoldfastError | None:
        """When the loop is over: what went wrong that no call has raised, or came to no end."""
        arrived = [done for done in self._left if done.done() and not done.cancelled()]
        failures = [self._failure, *(done.exception() for done in arrived)]
        failures += [way.error for way in self._line]
        for failure in failures:
            if failure is not None:
                return _told(failure)
        if all(way.over for way in self._line):
            return None
        return CaptureFailed("the event loop ended while it was on its way", hint=ENDED)

    async def settled(self) -> None:
        """Wait until nothing is on its way."""
        while self._line:
            await asyncio.wait({way.done for way in self._line})

    def _next(self) -> None:
        # Not as a task: each of its steps would be another round of the loop.
        loop = asyncio.get_running_loop()
        try:
            work = loop.run_in_executor(None, self._line[0].go)
        except RuntimeError as error:  # the program ends, and no thread is to be had any more
            work = loop.create_future()
            work.set_exception(error)
        work.add_done_callback(self._arrived)

    def _arrived(self, work: asyncio.Future[Any]) -> None:
        way = self._line.popleft()
        # Whatever became of it, those behind it must not wait for ever.
        lost = CaptureFailed("the program ended before it was saved", hint=ENDED)
        error = lost if work.cancelled() else work.exception()
        if not way.done.done() and error is not None:
            way.done.set_exception(error)  # for whoever waits, or the next call
        elif not way.done.done():
            way.done.set_result(work.result())
        if self._line:
            self._next()
        if self.on_room is not None:
            self.on_room()

    def _note(self, done: asyncio.Future[_T]) -> None:
        self._left.discard(done)
        error = done.exception()
        if error is not None and not isinstance(error, StoodStill):  # it is made once more
            self.failed(error)


def _told(failure: BaseException) -> HoldfastError:
    """What a call raises."""
    if isinstance(failure, HoldfastError):
        failure.add_note("in a checkpoint that was made beside the running session")
        return failure
    told = CaptureFailed(
        f"a checkpoint beside the running session failed: {failure}",
        hint="the session itself is as it was",
    )
    told.__cause__ = failure
    return told
