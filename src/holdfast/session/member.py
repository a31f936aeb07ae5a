"""A session as a member of a bundle: paused between cells, frozen aside, brought back in step."""

from __future__ import annotations

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.subject import Subject
from holdfast.session.session import Session
from holdfast.store import Store
from holdfast.store.leases import Lease

RUN_SECONDS = 120.0


class SessionMember:
    """Binds a session. Pausing waits for the cell that runs, and lets none begin."""

    rank = 0

    def __init__(self, session: Session) -> None:
        self._session = session
        self._keeper = session._keeper

    @property
    def subject(self) -> Subject:
        return self._session.subject

    @property
    def store(self) -> Store:
        return self._session.store

    @property
    def lease(self) -> Lease | None:
        return self._keeper.lease

    async def pause(self) -> None:
        await self._keeper.pause()

    async def resume(self) -> None:
        self._keeper.resume()

    async def capture(self, reason: str, stage: str | None) -> Checkpoint:
        return await self._keeper.freeze_aside(reason, stage)

    async def enter(self, checkpoint: Checkpoint, trust: bool) -> None:
        await self._keeper.enter(checkpoint, trust)

    async def run(self, code: str) -> None:
        """Run a cell in it while nobody else can. Raises CellFailed."""
        await self._keeper.run(code, RUN_SECONDS)

    async def arrive(self, checkpoint: Checkpoint) -> None:
        self._keeper.arrive(checkpoint)
