"""Bundles of subjects that nobody runs: their heads are bound, and moved, as they stand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.bundle import record
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, NotFound, Owned
from holdfast.model.subject import Subject
from holdfast.store import Store


class HeadMember:
    """Binds what nobody runs: its head is all that it is. Pausing makes sure of that."""

    rank = 2  # nothing has to be waited for
    lease = None

    def __init__(self, store: Store, subject: Subject) -> None:
        self.store = store
        self.subject = subject

    async def pause(self) -> None:
        owner = await asyncio.to_thread(self.store.owner, self.subject)
        if owner is not None:
            raise Owned(str(self.subject), owner.name, owner.url)

    async def resume(self) -> None:
        """It has not been kept from anything."""

    async def capture(self, reason: str, stage: str | None) -> Checkpoint:
        """Its head once more, aside: the same content, under the bundle's reason."""
        return await asyncio.to_thread(self._again, reason, stage)

    def _again(self, reason: str, stage: str | None) -> Checkpoint:
        head = self.store.head(self.subject)
        if head is None:
            raise NotFound(f"{self.subject} has no checkpoint that could be bound")
        with self.store.draft(self.subject, head, reason=reason, stage=stage, aside=True) as draft:
            draft.keep_from(head)
            return draft.commit()

    async def enter(self, checkpoint: Checkpoint, trust: bool) -> None:
        """Whoever brings it back will begin with its head."""
        await asyncio.to_thread(self.store.show, checkpoint)

    async def arrive(self, checkpoint: Checkpoint) -> None:
        """The head is all there is to it."""


def bind(store: Store, bundle: Subject, subjects: Sequence[Subject], reason: str) -> Checkpoint:
    """Bind the heads of these subjects. Raises NotFound for one without, Owned for one that
    somebody runs, whose head is behind it, and BadInput."""
    if bundle.kind != "bundle":
        raise BadInput(f"{bundle} is no bundle", hint=f"bundle/{bundle.name}")
    if not subjects or len(set(subjects)) != len(subjects):
        raise BadInput("a bundle binds one or more subjects, each once")
    made: list[Checkpoint] = []
    for subject in subjects:
        head = store.head(subject)
        if head is None or subject.kind == "bundle":
            raise NotFound(f"{subject} has no checkpoint that could be bound")
        if (owner := store.owner(subject)) is not None:
            raise Owned(str(subject), owner.name, owner.url)
        made.append(head)
    bound = record.write(store, bundle, made, reason=reason, stage=None)
    return store.move_heads(bound, verb="checkpoint")[0]


def restore(store: Store, bundle: Checkpoint, *, trust: bool) -> tuple[Checkpoint, ...]:
    """Move the heads of all members, and the bundle's own, to where they were; or none.

    When it raises, the store has what it had. Raises Owned when somebody runs one of them,
    Corrupt, Denied and Unsupported.
    """
    found: list[Checkpoint] = []
    made_again: list[Checkpoint] = []
    try:
        for bound in record.read(store, bundle, trust).members:
            member, is_new = record.find(store, bundle, bound, None)
            found.append(member)
            if is_new:
                made_again.append(member)
        return store.move_heads(*found, bundle, trust=trust)
    except BaseException:
        if made_again:
            store.delete(*made_again)
        raise
