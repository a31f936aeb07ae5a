"""Lines: which checkpoints a subject has, by the ids that LangGraph gave them.

A line follows the log of the store: it reads what is new, and begins anew when something is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.subject import Subject
from holdfast.store import Store

TAG = "langgraph"  # its value is the id; what is tagged is kept by the default retention


class Line:
    """The checkpoints of one subject. Thread-safe."""

    def __init__(
        self, store: Store, subject: Subject, name: Callable[[Checkpoint], str | None]
    ) -> None:
        """`name` gives the id of a checkpoint that has no tag: a fork or a rollback."""
        self.subject = subject
        self._store = store
        self._name = name
        self._lock = threading.Lock()
        self._clear()

    def get(self, wanted: str, *, look: bool = True) -> list[Checkpoint]:
        """Those with that id, oldest first; without a `look`, as far as is known here."""
        with self._lock:
            self._follow(look)
            return self._ids.get(wanted, [])

    def newest(self, wanted: str) -> Checkpoint | None:
        found = self.get(wanted)
        return found[-1] if found else None

    def last_seen(self, wanted: str) -> Checkpoint | None:
        """The newest with that id as this line last knew it; it may be gone."""
        found = self._ids.get(wanted)
        return found[-1] if found else None

    def ids(self) -> dict[str, list[Checkpoint]]:
        """All there are now, by id, in the order in which the ids came."""
        with self._lock:
            self._follow(look=True)
            return dict(self._ids)

    def _clear(self) -> None:
        self._ids: dict[str, list[Checkpoint]] = {}
        self._count = 0
        self._seen = 0

    def _follow(self, look: bool) -> None:
        self._take(self._store.list(self.subject, after=self._seen, look=look))
        if self._store.count(self.subject, look=False) != self._count:
            self._clear()  # something was dropped, by us or by others
            self._take(self._store.list(self.subject, look=False))

    def _take(self, fresh: list[Checkpoint]) -> None:
        for each in reversed(fresh):
            wanted = each.tags.get(TAG) or self._name(each)
            if wanted is not None:
                self._ids[wanted] = [*self._ids.get(wanted, ()), each]
            self._seen = each.sequence
        self._count += len(fresh)
