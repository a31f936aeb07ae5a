"""Hooks: what is done when all members are back and before anybody may use them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast.bundle.member import Member, Runs, member_of
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput


@dataclass(frozen=True, slots=True)
class Inside:
    """Python code that is run inside a member: to reseed, to reconnect, to take new tokens.

    The member is a session, whose names the code uses, or a sandbox, in which it is a process of
    its own; or its subject, as text.
    """

    member: object
    code: str


Hook = Callable[[Checkpoint], Awaitable[None] | None] | Inside


def check(hooks: Iterable[Hook], members: Sequence[Member]) -> None:
    """Raises BadInput for code that could not be run."""
    for hook in hooks:
        if isinstance(hook, Inside):
            find(hook, members)


def find(hook: Inside, members: Sequence[Member]) -> Runs:
    """The member that a hook means. Raises BadInput."""
    named = isinstance(hook.member, str)
    wanted = hook.member if named else str(member_of(hook.member).subject)
    for member in members:
        if str(member.subject) == wanted:
            if isinstance(member, Runs):
                return member
            raise BadInput(f"no code can be run in {wanted}", hint="a session or a sandbox")
    raise BadInput(f"{wanted} is no member of the bundle")
