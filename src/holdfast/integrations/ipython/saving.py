"""Captures on their way into the store, in a thread of their own, while the kernel goes on.

They are committed in the order in which they were captured, and only a few may be on their way:
then the next one waits. A failure that nobody waits for is told after the next cell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")

MOST = 2  # on their way at once: one is written while the next is captured


class Saving:
    """What is on its way."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "holdfast-saving")
        self._room = threading.Semaphore(MOST)
        self._last: Future[Any] | None = None  # `Any`: whatever was saved
        self._failures: list[BaseException] = []

    def room(self) -> None:
        """Wait until one more may be on its way. Whoever calls it begins one, or gives it back."""
        self._room.acquire()

    def give_back(self) -> None:
        """There was nothing to save after all."""
        self._room.release()

    def begin(self, save: Callable[[], _T]) -> Future[_T]:
        """Save after everything that was begun before. Needs `room`."""
        done = self._thread.submit(save)
        done.add_done_callback(lambda _: self._room.release())
        self._last = done
        return done

    def leave(self, done: Future[_T]) -> None:
        """Nobody waits for it: keep its failure to be told later."""
        done.add_done_callback(self._note)

    def failures(self) -> list[BaseException]:
        """What went wrong since the last time."""
        found, self._failures = self._failures, []
        return found

    def settled(self) -> None:
        """Wait until nothing is on its way."""
        if self._last is not None:
            self._last.exception()

    def close(self) -> None:
        """Wait for what is on its way; there is no more."""
        self._thread.shutdown()

    def _note(self, done: Future[_T]) -> None:
        error = done.exception()
        if error is not None:
            self._failures.append(error)
