"""The shelf: a store as the place of a session's checkpoints.

The subject is `state/<session_id>`, each checkpoint has one part, `state`, which the store
splits by structure, so that what did not change is not stored again. The saved state is a
subject of its own beside it: it is replaced again and again and must not push out checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Conflict, Corrupt, HoldfastError, NotFound
from holdfast.model.subject import Subject
from holdfast.state import document as documents
from holdfast.state import lineage
from holdfast.state.document import UNKNOWN_STAGE, Document
from holdfast.state.lineage import StateCheckpoint
from holdfast.state.place import no_session

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.draft import Draft

log = logging.getLogger("holdfast.state")

PART = "state"
# What the store's own record of a checkpoint says is not said again in the part: a store may
# copy the part into another subject, and the copy must not claim to be the first one.
_KEPT = ("parent_session", "state_info", "state_version", "schema_version", "typed")


Find = Callable[[str], Checkpoint | None]


class Shelf:
    """The checkpoints of one session on a store."""

    def __init__(self, store: Store, session_id: str) -> None:
        self.session_id = session_id
        self.subject = Subject("state", session_id)
        self._saved = Subject("state", f"{session_id}/saved")
        self._store = store

    # reading

    def checkpoints(self) -> list[StateCheckpoint]:
        line = self._line()
        return [self._told(each, line.get) for each in line.values()]

    def head(self) -> StateCheckpoint | None:
        head = self._store.head(self.subject)
        return self._told(head, self._kept) if head else None

    def latest(self) -> tuple[StateCheckpoint, Document] | None:
        newest = self._newest(self.subject)
        return (self._told(newest[0], self._kept), newest[1]) if newest else None

    def find(self, reference: str) -> StateCheckpoint:
        found = lineage.find(reference, self.checkpoints())
        return found or self._told(self._own(reference), self._kept)

    def read(self, checkpoint_id: str) -> Document:
        return self._document(self._own(checkpoint_id))

    def saved(self) -> Document | None:
        newest = self._newest(self._saved)
        return newest[1] if newest else None

    def saved_last(self) -> bool:
        # By the order of the log, not by times: a restore moves the head to a checkpoint that
        # has the time at which it was made.
        saved, head = (self._last_move(each) for each in (self._saved, self.subject))
        return saved > head

    def missing(self) -> HoldfastError:
        left = next(iter(self._store.list(subject=self.subject, limit=1)), None)
        if left is None:
            return no_session(self.session_id)
        return NotFound(
            f"the session {self.session_id} has checkpoints, but no head: its first was undone",
            hint=f"`holdfast restore {left.short}`, or store.restore({left.id!r}), gives it one",
        )

    # writing

    def add(self, document: Document, *, limit: int) -> StateCheckpoint:
        return self._settle(self._put(self.subject, document, document.parent or "head"), limit)

    def add_aside(self, document: Document) -> Checkpoint:
        """Keep a checkpoint that the head does not come to by itself."""
        return self._put(self.subject, document, document.parent or "head", aside=True)

    def arrived(self, checkpoint: Checkpoint) -> StateCheckpoint:
        """The head came to a checkpoint together with those of other subjects."""
        return self._told(checkpoint, self._kept)

    def create(self, document: Document) -> StateCheckpoint:
        # A subject whose first move was undone has no head, and it exists all the same.
        if any(self._store.list(subject=each, limit=1) for each in (self.subject, self._saved)):
            raise Conflict(
                f"there is a session {self.session_id} on this store already",
                hint="choose another name, or load it",
            )
        # Nothing is let go of: what comes into being beside it is somebody else's.
        made = self._put(self.subject, document, document.parent, new=True)
        return self._told(made, self._kept)

    def back_to(self, checkpoint: StateCheckpoint, *, limit: int) -> StateCheckpoint:
        return self._settle(self._store.rollback(self.subject, to=checkpoint.id), limit)

    def save(self, document: Document) -> None:
        before = self._store.list(subject=self._saved)
        self._put(self._saved, document, "head", head=document.parent)
        self._let_go(each.id for each in before)

    # inside

    def _put(
        self,
        subject: Subject,
        document: Document,
        parent: str | None,
        *,
        new: bool = False,
        aside: bool = False,
        **more: str | None,
    ) -> Checkpoint:
        from holdfast.store.parts.trees import Plain

        part = {name: getattr(document, name) for name in _KEPT} | more

        def draft(parent: str | None) -> Draft:
            return self._store.draft(
                subject,
                parent=parent,
                reason=document.reason,
                stage=document.stage,
                new=new,
                aside=aside,
            )

        try:
            begun = draft(parent)
        except NotFound:
            # Somebody let go of the parent. The checkpoint must be taken all the same.
            log.info("the parent of a checkpoint of %s is gone", self.session_id)
            begun = draft(None)
        with begun:
            begun.put(PART, Plain(part), split="structure")
            return begun.commit()

    def _settle(self, made: Checkpoint, limit: int) -> StateCheckpoint:
        """Let go of what is beyond the limit, now that the new one is durable."""
        if self._store.count(self.subject, look=False) > limit:
            line = self._line()
            free = [self._told(each, line.get) for each in line.values() if not _is_held(each)]
            surplus = lineage.surplus(free, limit)
            self._let_go(each.id for each in surplus if each.id != made.id)
        log.info("checkpoint %s of %s: %s", made.short, self.session_id, made.reason)
        return self._told(made, self._kept)

    def _let_go(self, ids: Iterable[str]) -> None:
        """Drop checkpoints. What is new is durable by now, so one that stays is no error."""
        for each in ids:
            try:
                self._store.delete(each)
                log.debug("removed checkpoint %s of %s", each, self.session_id)
            except NotFound:
                log.debug("checkpoint %s of %s was removed already", each, self.session_id)
            except HoldfastError as error:
                log.warning("could not remove %s of %s: %s", each, self.session_id, error)

    def _line(self) -> dict[str, Checkpoint]:
        """The session's checkpoints by id, newest first."""
        return {each.id: each for each in self._store.list(subject=self.subject)}

    def _kept(self, checkpoint_id: str) -> Checkpoint | None:
        try:
            return self._own(checkpoint_id)
        except NotFound:
            return None

    def _told(self, stored: Checkpoint, find: Find) -> StateCheckpoint:
        """What the store has, in the words of a state."""
        # A rollback has the content, and therefore the way back, of what it went to.
        origin = stored
        while origin.rollback_of and (target := find(origin.rollback_of)):
            origin = target
        parent = origin.parents[0] if origin.parents and not origin.rollback_of else None
        return StateCheckpoint(
            id=stored.id,
            session_id=self.session_id,
            time=stored.time,
            reason=stored.reason,
            stage=stored.stage or UNKNOWN_STAGE,
            parent=parent,
            rollback_of=(origin.rollback_of or origin.id) if stored.rollback_of else None,
            size_bytes=stored.size_bytes,
        )

    def _own(self, reference: str) -> Checkpoint:
        found = self._store.resolve(reference)
        if found.subject != self.subject:
            raise NotFound(f"no checkpoint {reference!r} of {self.session_id}")
        return found

    def _last_move(self, subject: Subject) -> int:
        """The log's entry that last gave a subject its present state; 0 when there is none. A
        head that went to its parent because it was deleted brought no state back."""
        moves = self._store.history(subject)
        return max((each.sequence for each in moves if each.verb != "delete"), default=0)

    def _newest(self, subject: Subject) -> tuple[Checkpoint, Document] | None:
        """The head, and what is in it. One that is pruned before it was read has a successor."""
        while (head := self._store.head(subject)) is not None:
            try:
                return head, self._document(head)
            except NotFound:
                if self._store.head(subject) == head:
                    raise
        return None

    def _document(self, checkpoint: Checkpoint) -> Document:
        part = self._store.value(checkpoint.id, PART)
        if not isinstance(part, dict):
            raise Corrupt(f"checkpoint {checkpoint.short} is not a state", where=checkpoint.id)
        raw: dict[str, Any] = {
            **part,
            "session_id": self.session_id,
            "parent_session": self._forked_from(checkpoint) or part.get("parent_session"),
            "timestamp": moment.to_text(checkpoint.time),
            "reason": checkpoint.reason,
            "stage": checkpoint.stage or UNKNOWN_STAGE,
            "parent": part.get("head"),
            "typed": part.get("typed", True),
        }
        return documents.from_raw(raw, self.session_id)

    def _forked_from(self, checkpoint: Checkpoint) -> str | None:
        """The session that a fork's first checkpoint came from."""
        if not checkpoint.parents:
            return None
        try:
            parent = self._store.resolve(checkpoint.parents[0])
        except NotFound:
            return None  # let go of since; a fork by a manager also says it in the part
        return parent.subject.name if parent.subject != checkpoint.subject else None


def _is_held(checkpoint: Checkpoint) -> bool:
    """Did somebody ask for it to be kept?"""
    return checkpoint.pinned or bool(checkpoint.tags)
