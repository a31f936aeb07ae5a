"""A block of a session that happens as a whole: when it raises, the session goes back."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.model.errors import HoldfastError
from holdfast.session.autosave import Autosave
from holdfast.session.checkpoints import SessionCheckpoint

if TYPE_CHECKING:
    from holdfast.session.session import Session


class Transaction:
    """Begins with a checkpoint, and rolls back to it on an exception.

    Because no automatic checkpoint is made inside, a host that is killed in the middle resumes
    at the beginning, too.
    """

    def __init__(self, session: Session, autosave: Autosave, reason: str) -> None:
        self._session = session
        self._autosave = autosave
        self._reason = reason
        self._held = ExitStack()
        self.checkpoint: SessionCheckpoint | None = None  # its beginning
        self.rolled_back = False

    async def __aenter__(self) -> Self:
        self.checkpoint = await self._session.checkpoint(reason=self._reason)
        self._held.enter_context(self._autosave.hold())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.close()
        if error is None:
            await self._autosave.catch_up()
            return
        try:
            await self._session.rollback(to=self.checkpoint)
        except HoldfastError as failure:
            error.add_note(f"the session could not be rolled back: {failure}")
        else:
            self.rolled_back = True
