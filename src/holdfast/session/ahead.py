"""Memory that comes ahead of its capture: a checkpoint is begun with it while the worker is at the
rest. Nothing hangs on it: where it was begun with something else, or not at all, the capture is
saved as ever."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from holdfast.model.once import once
from holdfast.protocol.session_messages import AheadMessage, MemoryMessage
from holdfast.session.captured import Captured
from holdfast.session.memory import Distant, Memories
from holdfast.store.draft import Draft

_THREADS = 4  # sessions that begin one at the same time; others do without


@once
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="holdfast-ahead")


@dataclass(frozen=True, slots=True)
class Begun:
    """A draft on top of `parent`, with memory in it: what was said about each part."""

    draft: Draft
    parent: str | None
    told: dict[str, MemoryMessage]

    def fits(self, captured: Captured, parent: str | None) -> bool:
        """Whether it is the beginning of this capture on top of this parent."""
        memory = captured.memory
        return self.parent == parent and all(
            name in memory and memory[name].ahead == told for name, told in self.told.items()
        )


class Ahead:
    """What one capture sends ahead, if it does."""

    def __init__(self, begin: Callable[[AheadMessage, Memories], Begun | None]) -> None:
        """`begin` is called in a thread; None when it had better be left alone."""
        self._begin = begin
        self._work: Future[Begun | None] | None = None  # whoever takes it sees to its end

    def take(self, told: AheadMessage, file: int) -> None:
        """Begin with this memory; the file is ours to close. Raises Corrupt."""
        self.give_up()
        distant, memory = Distant(file, 0), Memories()
        try:
            for message in told.memory:
                memory.take(message, distant)
            self._work = _threads().submit(self._begin, told, memory)
        except BaseException:
            distant.close()
            raise
        self._work.add_done_callback(lambda done: distant.close())

    def begun(self, captured: Captured, parent: str | None) -> Begun | None:
        """The draft, which is the caller's then; None where nobody has come to it yet, or it is not
        the beginning of this capture on top of this parent."""
        work, self._work = self._work, None
        begun = None if work is None or work.cancel() else work.result()
        if begun is not None and not begun.fits(captured, parent):
            begun.draft.discard()
            return None
        return begun

    def give_up(self) -> None:
        """Nobody will ask for it."""
        work, self._work = self._work, None
        if work is not None and not work.cancel():
            work.add_done_callback(_discard)


def _discard(done: Future[Begun | None]) -> None:
    begun = done.result()
    if begun is not None:
        begun.draft.discard()
