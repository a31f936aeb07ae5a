"""Places: where the checkpoints of one session are kept. One contract, two kinds of place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeAlias

from holdfast.model.errors import HoldfastError, NotFound
from holdfast.state.document import Document
from holdfast.state.lineage import StateCheckpoint

Clock: TypeAlias = Callable[[], datetime]


class Place(Protocol):
    """The checkpoints of one session, and its saved state beside them.

    Everything written is durable when the call returns. A document given to be written has no
    time yet: the place gives it one that is later than all it has.
    """

    def checkpoints(self) -> list[StateCheckpoint]:
        """Newest first. What cannot be read is left out, with a warning in the log."""
        ...

    def head(self) -> StateCheckpoint | None:
        """The checkpoint the session now descends from, if it has any."""
        ...

    def latest(self) -> tuple[StateCheckpoint, Document] | None:
        """The head and what it holds. Raises Unsupported for a newer version."""
        ...

    def saved_last(self) -> bool:
        """Whether the saved state is from after the last move of the head: a checkpoint, a
        rollback, or a restore by somebody else. Then it is the session's present state."""
        ...

    def find(self, reference: str) -> StateCheckpoint:
        """The checkpoint that is meant. Raises NotFound, or why it cannot be used."""
        ...

    def read(self, checkpoint_id: str) -> Document:
        """What a checkpoint holds. Raises NotFound, Corrupt or Unsupported."""
        ...

    def add(self, document: Document, *, limit: int) -> StateCheckpoint:
        """Keep a checkpoint, then let go of those beyond the limit. Raises StorageFull.

        A document without a parent gets the head as its parent.
        """
        ...

    def create(self, document: Document) -> StateCheckpoint:
        """Keep the first checkpoint of a new session. Raises Conflict if it is not new."""
        ...

    def back_to(self, checkpoint: StateCheckpoint, *, limit: int) -> StateCheckpoint:
        """Keep a new checkpoint with the content of an earlier one: a rollback."""
        ...

    def missing(self) -> HoldfastError:
        """Why there is neither a head nor a saved state to load, and what to do about it."""
        ...

    def save(self, document: Document) -> None:
        """Replace the saved state."""
        ...

    def saved(self) -> Document | None:
        """The saved state, if there is a readable one. Raises Unsupported for a newer version."""
        ...


def no_session(session_id: str) -> NotFound:
    return NotFound(f"no session {session_id}", hint="StateManager(session_id) begins one")
