"""A state manager as a member of a bundle: taken at one moment, brought back in step."""

from __future__ import annotations

import asyncio

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import UsageError
from holdfast.model.subject import Subject
from holdfast.state.async_manager import AsyncStateManager
from holdfast.state.manager import StateManager
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

    @property
    def subject(self) -> Subject:
        return self._shelf.subject

    async def pause(self) -> None:
        """There is nothing to be waited for."""

    async def resume(self) -> None:
        """It has not been kept from anything."""

    async def capture(self, reason: str, stage: str | None) -> Checkpoint:
        manager = self._manager
        with manager._lock:  # its stage is its own
            document, _ = manager._document(reason)
            parent = manager._head.origin if manager._head else None
        return await asyncio.to_thread(self._shelf.add_aside, document.after(parent))

    async def enter(self, checkpoint: Checkpoint, trust: bool) -> None:
        document = await asyncio.to_thread(self._shelf.read, checkpoint.id)
        with self._manager._lock:
            self._manager._replace(self._manager._state(document))

    async def arrive(self, checkpoint: Checkpoint) -> None:
        self._manager._head = await asyncio.to_thread(self._shelf.arrived, checkpoint)
