"""Captures on their way into the store, in a thread of their own, while the kernel goes on.

They are committed in the order in which they were captured, and only a few may be on their way:
then the next one waits, or, where nobody asked for it, is put off. A failure that nobody waits for
is told after the next cell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from holdfast.session.captured import StoodStill

_T = TypeVar("_T")

MOST = 2  # on their way at once: one is written while the next is captured


class Saving:
    """What is on its way."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "holdfast-saving")
        self._room = threading.Semaphore(MOST)
        self._last: Future[Any] | None = None  # `Any`: whatever was saved
        self._long: set[Future[Any]] = set()  # those on their way that take long
        self._coming: dict[Future[Any], str] = {}  # all of them, and why they are made
        self.on_room: Callable[[], None] | None = None  # called in another thread
        self._failures: list[BaseException] = []
        # Called in another thread with the reason of a capture that its copy stood still at.
        self.on_stood: Callable[[str], None] | None = None

    def room(self, patient: bool = True) -> bool:
        """Wait until one more may be on its way. Whoever calls it begins one, or gives it back.

        If not `patient`, False instead of a wait that somebody would feel.
        """
        return self._room.acquire(blocking=patient or not self._long)

    def give_back(self) -> None:
        """There was nothing to save after all."""
        self._room.release()

    def begin(self, save: Callable[[], _T], reason: str = "", long: bool = False) -> Future[_T]:
        """Save after everything that was begun before. Needs `room`."""
        done = self._thread.submit(save)
        if long:
            self._long.add(done)
        self._coming[done] = reason
        done.add_done_callback(self._arrived)
        self._last = done
        return done

    def leave(self, done: Future[_T]) -> None:
        """Nobody waits for it: keep its failure to be told later."""
        reason = self._coming.get(done, "")
        done.add_done_callback(partial(self._note, reason))

    def failed(self, error: BaseException) -> None:
        """Keep a failure to be told later."""
        self._failures.append(error)

    def failures(self) -> list[BaseException]:
        """What went wrong since the last time."""
        found, self._failures = self._failures, []
        return found

    def settled(self, timeout: float | None = None) -> None:
        """Wait until nothing is on its way, or until that has taken some seconds."""
        if self._last is not None:
            with suppress(TimeoutError):
                self._last.exception(timeout)

    @property
    def long(self) -> bool:
        """Whether something is on its way that takes long."""
        return bool(self._long)

    @property
    def coming(self) -> list[str]:
        """Why those that are on their way are made, in order."""
        return [reason for done, reason in list(self._coming.items()) if not done.done()]

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return self._last is None or self._last.done()

    def close(self) -> None:
        """Wait for what is on its way; there is no more."""
        self._thread.shutdown()

    def _arrived(self, done: Future[Any]) -> None:
        self._long.discard(done)
        self._coming.pop(done, None)
        self._room.release()
        if self.on_room is not None:
            self.on_room()

    def _note(self, reason: str, done: Future[_T]) -> None:
        error = done.exception()
        if isinstance(error, StoodStill) and self.on_stood is not None:
            self.on_stood(reason)
        elif error is not None:
            self.failed(error)
