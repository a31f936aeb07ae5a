"""The shelf: a store as the place of a session's checkpoints.

The subject is `state/<session_id>`, each checkpoint has one part, `state`, which the store
splits by structure, so that what did not change is not stored again. The saved state is a
subject of its own beside it: it is replaced again and again and must not push out checkpoints.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Conflict, Corrupt, NotFound
from holdfast.model.subject import Subject
from holdfast.state import document as documents
from holdfast.state import lineage
from holdfast.state.document import UNKNOWN_STAGE, Document
from holdfast.state.lineage import StateCheckpoint

if TYPE_CHECKING:
    from holdfast.store import Store

log = logging.getLogger("holdfast.state")

PART = "state"
# What the store's own record of a checkpoint says already is not said again in the part.
_KEPT = ("session_id", "parent_session", "state_info", "schema_version")


class Shelf:
    """The checkpoints of one session on a store."""

    def __init__(self, store: Store, session_id: str) -> None:
        self.session_id = session_id
        self.subject = Subject("state", session_id)
        self._saved = Subject("state", f"{session_id}/saved")
        self._store = store

    # reading

    def checkpoints(self) -> list[StateCheckpoint]:
        return _checkpoints(self._store.list(subject=self.subject), self.session_id)

    def head(self) -> StateCheckpoint | None:
        head = self._store.head(self.subject)
        return self._in_line(head) if head else None

    def latest(self) -> tuple[StateCheckpoint, Document] | None:
        head = self._store.head(self.subject)
        return (self._in_line(head), self._document(head)) if head else None

    def find(self, reference: str) -> StateCheckpoint:
        found = lineage.find(reference, self.checkpoints())
        return found or self._in_line(self._own(reference))

    def read(self, checkpoint_id: str) -> Document:
        return self._document(self._own(checkpoint_id))

    def saved(self) -> Document | None:
        head = self._store.head(self._saved)
        return self._document(head) if head else None

    def exists(self) -> bool:
        return bool(self._store.head(self.subject) or self._store.head(self._saved))

    # writing

    def add(self, document: Document, *, limit: int) -> StateCheckpoint:
        return self._settle(self._put(self.subject, document, self._parent(document)), limit)

    def create(self, document: Document) -> StateCheckpoint:
        if self.exists():
            raise Conflict(
                f"there is a session {self.session_id} on this store already",
                hint="choose another name, or load it",
            )
        return self._settle(self._put(self.subject, document, None), limit=1)

    def back_to(self, checkpoint: StateCheckpoint, *, limit: int) -> StateCheckpoint:
        return self._settle(self._store.rollback(self.subject, to=checkpoint.id), limit)

    def save(self, document: Document) -> None:
        before = self._store.list(subject=self._saved)
        self._put(self._saved, document, "head", head=document.parent)
        for old in before:
            self._store.delete(old)

    # inside

    def _put(
        self, subject: Subject, document: Document, parent: str | None, **more: str | None
    ) -> Checkpoint:
        part = {name: getattr(document, name) for name in _KEPT} | more
        with self._store.draft(
            subject, parent=parent, reason=document.reason, stage=document.stage
        ) as draft:
            draft.put(PART, part, split="structure")
            return draft.commit()

    def _parent(self, document: Document) -> str | None:
        if document.parent is None:
            return "head"
        try:
            return self._own(document.parent).id
        except NotFound:
            # Somebody let go of it. The checkpoint must be taken all the same.
            log.info("the parent of a checkpoint of %s is gone", self.session_id)
            return None

    def _settle(self, made: Checkpoint, limit: int) -> StateCheckpoint:
        """Let go of what is beyond the limit, now that the new one is durable."""
        stored = {each.id: each for each in self._store.list(subject=self.subject)}
        present = _checkpoints(list(stored.values()), self.session_id)
        free = [each for each in present if not _is_held(stored[each.id])]
        for old in lineage.surplus(free, limit):
            self._store.delete(old.id)
            log.debug("removed checkpoint %s of %s", old.id, self.session_id)
        log.info("checkpoint %s of %s: %s", made.short, self.session_id, made.reason)
        return self._in_line(made)

    def _in_line(self, stored: Checkpoint) -> StateCheckpoint:
        line = {each.id: each for each in self._store.list(subject=self.subject)}
        return _checkpoint(stored, line, self.session_id)

    def _own(self, reference: str) -> Checkpoint:
        found = self._store.resolve(reference)
        if found.subject != self.subject:
            raise NotFound(f"no checkpoint {reference!r} of {self.session_id}")
        return found

    def _document(self, checkpoint: Checkpoint) -> Document:
        part = self._store.value(checkpoint.id, PART)
        if not isinstance(part, dict):
            raise Corrupt(f"checkpoint {checkpoint.short} is not a state", where=checkpoint.id)
        raw: dict[str, Any] = {
            **part,
            "timestamp": moment.to_text(checkpoint.time),
            "reason": checkpoint.reason,
            "stage": checkpoint.stage or UNKNOWN_STAGE,
            "parent": part.get("head"),
        }
        return documents.from_raw(raw, self.session_id)


def _is_held(checkpoint: Checkpoint) -> bool:
    """Did somebody ask for it to be kept?"""
    return checkpoint.pinned or bool(checkpoint.tags)


def _checkpoints(stored: list[Checkpoint], session_id: str) -> list[StateCheckpoint]:
    by_id = {each.id: each for each in stored}
    return [_checkpoint(each, by_id, session_id) for each in stored]


def _checkpoint(
    stored: Checkpoint, by_id: dict[str, Checkpoint], session_id: str
) -> StateCheckpoint:
    # A rollback has the content, and therefore the way back, of what it went to.
    origin = stored
    while origin.rollback_of in by_id:
        origin = by_id[origin.rollback_of]
    parent = origin.parents[0] if origin.parents and not origin.rollback_of else None
    return StateCheckpoint(
        id=stored.id,
        session_id=session_id,
        time=stored.time,
        reason=stored.reason,
        stage=stored.stage or UNKNOWN_STAGE,
        parent=parent,
        rollback_of=(origin.rollback_of or origin.id) if stored.rollback_of else None,
        size_bytes=stored.size_bytes,
    )
