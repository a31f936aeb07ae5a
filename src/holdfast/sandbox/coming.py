"""A moment that is still on its way to the disk: what of it is there already can be stored.

The engine writes memory, and the store reads, hashes and writes it again; one behind the other that
takes the sum of both, and beside each other hardly more than the engine. Only for who waits for the
checkpoint and not for the sandbox: one that goes on afterwards would stand still longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holdfast.model.errors import CaptureFailed
from holdfast.model.once import once
from holdfast.sandbox.whole import run_in
from holdfast.store.parts.sources import Growing

T = TypeVar("T")
_SECONDS = 0.002  # between two looks at what grows
_THREADS = 8  # of as many sandboxes at once; others are stored when one of these is


@once
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "holdfast-coming")


@dataclass(frozen=True, slots=True)
class Moment:
    """One of a sandbox, on the disk of this machine: what is known of it, its files packed, and its
    memory, where that is kept."""

    config: Mapping[str, object]
    files: Path
    image: Path | None


class Coming:
    """Told by whoever freezes a sandbox; waited for by another thread, which stores it."""

    def __init__(self) -> None:
        self._begun: Future[list[Path]] = Future()
        self._moment: Future[Moment] = Future()

    # -- for whoever freezes

    def begins(self, image: Path, in_order: Sequence[str]) -> None:
        """The engine writes an image, and these of its files from beginning to end."""
        self._begun.set_result([image / name for name in in_order])

    def is_there(self, moment: Moment) -> None:
        """All of it, for good."""
        if not self._begun.done():
            self._begun.set_result([])
        self._moment.set_result(moment)

    def fails(self) -> None:
        """It will never be there. Whoever waits gets CaptureFailed."""
        for awaited in (self._begun, self._moment):
            if not awaited.done():
                awaited.set_exception(CaptureFailed("the sandbox was not frozen after all"))

    # -- for whoever stores

    async def awaited_by(self, store: Callable[[], T]) -> T:
        """Run what stores it, in a thread. Not in one of those that freezing needs: all of them
        might be waiting for what none is left to bring about."""
        return await run_in(_threads(), None, store)

    def growing(self) -> Iterator[Growing]:
        """What may be read while it is written, each when it can be opened. Raises CaptureFailed,
        as reading them does."""
        for path in self._begun.result():
            while not path.exists() and not self._is_complete():
                self._rest()
            if path.exists():
                yield Growing(path, self._is_complete, self._rest)

    def moment(self) -> Moment:
        """Raises CaptureFailed."""
        return self._moment.result()

    def _is_complete(self) -> bool:
        if not self._moment.done():
            return False
        self._moment.result()  # raises where it will never be
        return True

    def _rest(self) -> None:
        """Until there may be more, or the moment is there."""
        wait((self._moment,), _SECONDS)
