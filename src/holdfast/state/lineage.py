"""Lineage: what a state's checkpoint is, what came before it, and which to let go. Pure.

Lists of checkpoints are newest first everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from holdfast.model.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCheckpoint:
    """An immutable moment of an application's state.

    `parent` is what `rollback()` goes to from here. A rollback is itself a checkpoint: it has
    the content and the parent of what it went to, which `rollback_of` names.
    """

    id: str
    session_id: str
    time: datetime
    reason: str
    stage: str
    parent: str | None = None
    rollback_of: str | None = None
    path: Path | None = None
    size_bytes: int = 0
    # What was left out of it, and why; known to whoever made it.
    report: Report = field(default=Report(), compare=False)

    def __str__(self) -> str:
        return f"{self.id} state/{self.session_id} ({self.reason})"

    def with_report(self, report: Report) -> StateCheckpoint:
        return replace(self, report=report) if report else self

    @property
    def origin(self) -> str:
        """The checkpoint that first had this content."""
        return self.rollback_of or self.id


def find(wanted: str, present: Sequence[StateCheckpoint]) -> StateCheckpoint | None:
    """The checkpoint of that id, or else the newest one with its content."""
    exact = next((each for each in present if each.id == wanted), None)
    return exact or next((each for each in present if each.origin == wanted), None)


def earlier(head: StateCheckpoint, present: Sequence[StateCheckpoint]) -> StateCheckpoint | None:
    """What `rollback()` goes to from `head`, if it is still kept."""
    return find(head.parent, present) if head.parent else None


def surplus(present: Sequence[StateCheckpoint], limit: int) -> list[StateCheckpoint]:
    """Which to remove so that `limit` remain, in the order of removal. Never the newest.

    Rollbacks whose content is also elsewhere go first: going back five times must not push out
    five real checkpoints. After them, the oldest.
    """
    excess = len(present) - max(limit, 1)
    if excess <= 0:
        return []
    oldest_first = list(reversed(present[1:]))
    removed: list[StateCheckpoint] = []
    for each in oldest_first:
        if each.rollback_of and len(removed) < excess:
            others = (other for other in present if other is not each and other not in removed)
            if any(other.origin == each.origin for other in others):
                removed.append(each)
    removed += [each for each in oldest_first if each not in removed][: excess - len(removed)]
    return removed
