"""Members: what a bundle asks of a state, a session or a sandbox."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput
from holdfast.model.subject import Subject
from holdfast.session import Session
from holdfast.session.member import SessionMember
from holdfast.state import AsyncStateManager, StateManager
from holdfast.state.member import StateMember
from holdfast.store import Store
from holdfast.store.leases import Right


@runtime_checkable
class Member(Protocol):
    """One of those that are frozen together.

    `capture`, `enter` and `arrive` are called while it is paused. The members of the lowest rank
    are paused first and captured last: those that take longest to stand still.
    """

    @property
    def rank(self) -> int: ...

    @property
    def subject(self) -> Subject: ...

    @property
    def store(self) -> Store | None:
        """Where its checkpoints are; None for a distant one that does not know yet."""
        ...

    @property
    def lease(self) -> Right | None:
        """Its right to advance the subject, if it needs one."""
        ...

    async def pause(self) -> None:
        """From here on nothing of it changes by itself."""
        ...

    async def resume(self) -> None:
        """It goes on."""
        ...

    async def capture(self, reason: str, stage: str | None) -> Checkpoint:
        """A durable checkpoint aside: no head comes to it. Raises CaptureFailed."""
        ...

    async def enter(self, checkpoint: Checkpoint, trust: bool) -> None:
        """Become what the checkpoint holds; no head moves. When it raises, it is as it was."""
        ...

    async def arrive(self, checkpoint: Checkpoint) -> None:
        """The head is there now: it descends from this checkpoint."""
        ...


@runtime_checkable
class Distant(Protocol):
    """A member that another process runs, on the same store."""

    def settle(self, store: Store) -> None:
        """It is told which store that is."""
        ...

    async def check(self) -> None:
        """Asked before heads move. Raises HoldfastError when its process is gone."""
        ...


@runtime_checkable
class Runs(Protocol):
    """A member that code can be run in while it is brought back."""

    async def run(self, code: str) -> None:
        """Run Python code in it. Raises HoldfastError when that fails."""
        ...


@runtime_checkable
class Bindable(Protocol):
    """Something that can say how it is bound."""

    def as_member(self) -> Member: ...


def member_of(thing: object) -> Member:
    """The member that somebody means. Raises BadInput, and UsageError for one that cannot be."""
    if isinstance(thing, Session):
        return SessionMember(thing)
    if isinstance(thing, (StateManager, AsyncStateManager)):
        return StateMember(thing)
    if isinstance(thing, Bindable):
        return thing.as_member()
    if isinstance(thing, Member):
        return thing
    raise BadInput(
        f"{type(thing).__name__} cannot be a member of a bundle",
        hint="a Session, a StateManager on a store, or a Sandbox",
    )
