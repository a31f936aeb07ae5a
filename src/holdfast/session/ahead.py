"""What can be done ahead of a capture: a checkpoint is begun while the worker is at it, and goes on
with memory that comes before the rest. Nothing hangs on it: where it was begun with something else,
or not at all, the capture is saved as ever."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.model.errors import Corrupt
from holdfast.model.once import once
from holdfast.protocol.session_messages import AheadMessage, MemoryMessage
from holdfast.session.captured import Captured
from holdfast.session.memory import Distant, Memories
from holdfast.store.draft import Draft

_THREADS = 16  # half of them for sessions that begin one at the same time; others wait


@once
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="holdfast-ahead")


@dataclass(frozen=True, slots=True)
class Begun:
    """A draft on top of `parent`, with memory in it: what was said about each part."""

    draft: Draft
    parent: str | None
    told: dict[str, MemoryMessage] = field(default_factory=dict)

    def fits(self, captured: Captured, parent: str | None) -> bool:
        """Whether it is the beginning of this capture on top of this parent."""
        memory = captured.memory
        return self.parent == parent and all(
            name in memory and memory[name].ahead == told for name, told in self.told.items()
        )


class Opened(NamedTuple):
    """Whether the base of a capture is there, and what was begun on top of it."""

    there: bool
    begun: Begun | None = None


Begin = Callable[[], Opened]
Fill = Callable[[Begun, AheadMessage, Memories], bool]  # False: it came to nothing


class Ahead:
    """What is done ahead of one capture, in threads."""

    def __init__(self, begin: Begin, fill: Fill) -> None:
        self._begin = begin
        self._fill = fill
        self._opened: Future[Opened] | None = None
        self._work: Future[Begun | None] | None = None  # whoever takes it sees to its end

    def begin(self) -> Future[Opened]:
        """When the worker has been asked; once."""
        self._opened = _threads().submit(self._begin)
        return self._opened

    def take(self, told: AheadMessage, file: int) -> None:
        """Go on with this memory; the file is ours to close. Raises Corrupt."""
        distant, memory = Distant(file, 0), Memories()
        try:
            for message in told.memory:
                memory.take(message, distant)
            if self._opened is None or self._work is not None:
                raise Corrupt("memory came ahead of a capture that nobody is waiting for")
            # Behind what it waits for, so that some thread has come to that.
            self._work = _threads().submit(self._filled, self._opened, told, memory)
        except BaseException:
            distant.close()
            raise
        self._work.add_done_callback(lambda done: distant.close())

    def _filled(self, opened: Future[Opened], told: AheadMessage, memory: Memories) -> Begun | None:
        begun = opened.result().begun
        return begun if begun is not None and self._fill(begun, told, memory) else None

    def begun(self, captured: Captured, parent: str | None) -> Begun | None:
        """The draft, which is the caller's then; None where it is not the beginning of this capture
        on top of this parent. Memory that nobody has come to yet is not waited for."""
        begun = _result(*self._taken())
        if begun is not None and not begun.fits(captured, parent):
            begun.draft.discard()
            return None
        return begun

    def give_up(self) -> None:
        """Nobody will ask for it."""
        opened, work = self._taken()
        last = work if work is not None and not work.cancel() else opened
        if last is not None and not last.cancel():
            last.add_done_callback(
                lambda done: None if done.exception() else _discard(_result(opened, work))
            )

    def _taken(self) -> tuple[Future[Opened] | None, Future[Begun | None] | None]:
        taken = self._opened, self._work
        self._opened = self._work = None
        return taken


def _result(opened: Future[Opened] | None, work: Future[Begun | None] | None) -> Begun | None:
    if opened is None or opened.cancel():
        return None
    if work is not None and not work.cancel():
        return work.result()
    return opened.result().begun


def _discard(begun: Begun | None) -> None:
    if begun is not None:
        begun.draft.discard()
