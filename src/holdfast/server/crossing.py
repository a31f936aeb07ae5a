"""The one place where the server's coroutines cross over into the store's blocking calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from anyio import CapacityLimiter, to_thread

if TYPE_CHECKING:
    from holdfast.store import Store

T = TypeVar("T")
THREADS = 8


class Crossing:
    """Runs work on the store in a thread, a few at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._limiter: CapacityLimiter | None = None

    async def __call__(self, work: Callable[[Store], T]) -> T:
        # Made on the first call, because a limiter belongs to the loop that it was made in.
        self._limiter = self._limiter or CapacityLimiter(THREADS)
        # Cancelled when the server stops, and then nobody waits for the answer: it only reads.
        return await to_thread.run_sync(
            self._work, work, limiter=self._limiter, abandon_on_cancel=True
        )

    def _work(self, work: Callable[[Store], T]) -> T:
        self._store.refresh()  # other processes write into the same store
        return work(self._store)
