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

    def get(self, wanted: str) -> list[Checkpoint]:
        """Those with that id, oldest first."""
        return self.ids().get(wanted, [])

    def newest(self, wanted: str) -> Checkpoint | None:
        found = self.get(wanted)
        return found[-1] if found else None

    def ids(self) -> dict[str, list[Checkpoint]]:
        """All there are now, by id, in the order in which the ids came."""
        with self._lock:
            self._follow()
            if self._store.count(self.subject, look=False) != self._count:
                self._clear()  # something was dropped, by us or by others
                self._follow()
            return self._ids

    def _clear(self) -> None:
        self._ids: dict[str, list[Checkpoint]] = {}
        self._count = 0
        self._seen = 0

    def _follow(self) -> None:
        fresh = self._store.list(self.subject, after=self._seen)
        if not fresh:
            return
        # A dictionary of its own: others may be going through the last one.
        ids = dict(self._ids)
        for each in reversed(fresh):
            wanted = each.tags.get(TAG) or self._name(each)
            if wanted is not None:
                ids[wanted] = [*ids.get(wanted, ()), each]
        self._ids = ids
        self._count += len(fresh)
        self._seen = fresh[0].sequence
