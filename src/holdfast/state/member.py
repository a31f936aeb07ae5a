"""A state manager as a member of a bundle: taken at one moment, brought back in step."""

from __future__ import annotations

import asyncio

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import UsageError
from holdfast.model.subject import Subject
from holdfast.state.async_manager import AsyncStateManager
from holdfast.state.document import Document
from holdfast.state.manager import Begun, StateManager
from holdfast.state.shelf import Shelf
from holdfast.store import Store


class StateMember:
    """Binds a manager whose checkpoints are on a store. Raises UsageError for one with files.

    An application's state cannot be kept from changing: it is taken when it is captured, without
    waiting for anything, which happens first of all once the others stand still.
    """

    rank = 1

    lease = None

    def __init__(self, manager: StateManager | AsyncStateManager) -> None:
        own = manager._manager if isinstance(manager, AsyncStateManager) else manager
        if not isinstance(own._place, Shelf) or own._store is None:
            raise UsageError(
                f"the checkpoints of {own.session_id} are files, which no bundle can bind",
                hint="StateManager(session_id, store=store) keeps them on a store",
            )
        self._manager: StateManager = own
        self._shelf = own._place
        self.store: Store = own._store
        self._captured: tuple[Document, int, Begun[None]] | None = None
        self._entered: Document | None = None

    @property
    def subject(self) -> Subject:
        return self._shelf.subject

    async def pause(self) -> None:
        """There is nothing to be waited for."""

    async def resume(self) -> None:
        """It has not been kept from anything. What was captured is a checkpoint now, or nothing."""
        self._captured = self._entered = None

    async def capture(self, reason: str, stage: str | None) -> Checkpoint:
        manager = self._manager
        with manager._lock:  # its stage is its own
            document, _ = manager._document(reason)
            # Until the heads have moved, a state that is saved meanwhile is the later one.
            self._captured = document, manager._taken, manager._begin(lambda: None)
            parent = manager._head.origin if manager._head else None
        made = await asyncio.to_thread(self._shelf.add_aside, document.after(parent))
        with manager._lock:
            manager._secrets.belong(document.state_info, self._shelf.arrived(made).origin)
        return made

    async def enter(self, checkpoint: Checkpoint, trust: bool) -> None:
        document = await asyncio.to_thread(self._shelf.read, checkpoint.id)
        origin = self._shelf.arrived(checkpoint).origin
        with self._manager._lock:
            # The document stays as it is: it may be compared with what is saved later.
            self._manager._replace(self._manager._state(document, origin, shared=True))
            self._entered = document

    async def arrive(self, checkpoint: Checkpoint) -> None:
        await asyncio.to_thread(self._arrive, checkpoint)

    def _arrive(self, checkpoint: Checkpoint) -> None:
        head = self._shelf.arrived(checkpoint)
        if self._entered is not None:
            self._manager._went_to(head, self._entered)
        elif self._captured is not None:
            document, taken, _ = self._captured
            self._manager._came_to(head, document, taken)
