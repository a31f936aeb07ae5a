"""A session's own line through its subject's lineage, wherever others move the head meanwhile."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import NotFound
from holdfast.model.subject import Subject

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.leases import Lease


class Line:
    """The checkpoint that a session now descends from: its own last one, not the head."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.at: Checkpoint | None = None

    def parents(self) -> tuple[str | None, ...]:
        """What may be the parent of the next checkpoint, the best first.

        The last checkpoint may have been deleted meanwhile: then its own parent is next, and
        without that the line begins anew.
        """
        return (None,) if self.at is None else (self.at.id, *self.at.parents, None)

    def rollback_target(self, store: Store) -> Checkpoint:
        """The checkpoint before the last one; after a rollback, before what that went to.

        Raises NotFound at the beginning of the line.
        """
        if self.at is None:
            raise NotFound(
                f"{self._subject} has made no checkpoint to go back from",
                hint="give the checkpoint to go to",
            )
        base = self.at
        while base.rollback_of is not None:
            base = store.resolve(base.rollback_of)
        before = store.resolve(base.parents[0]) if base.parents else None
        if before is None or before.subject != self._subject:
            raise NotFound(
                f"{self._subject} is at its first checkpoint ({base.short})",
                hint="give the checkpoint to go to",
            )
        return before

    def take_head(self, store: Store, lease: Lease | None = None) -> None:
        """Move the head back to this line, so that what the store puts on top belongs to it."""
        if self.at is None:
            return
        head = store.head(self._subject)
        if head is None or head.id != self.at.id:
            with suppress(NotFound):  # it was deleted: the store put the head where it could
                # A session that descends from it has been trusting it all along.
                store.restore(self.at.id, trust=True, lease=lease)
