"""What a bundle's checkpoint says of its members (spec/bundle-v1.md)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, Corrupt, NotFound, Unsupported
from holdfast.model.subject import Subject
from holdfast.store import Store
from holdfast.store.leases import Right

PART = "members"
FORMAT = 1


class Bound(msgspec.Struct, frozen=True):
    """A member and its checkpoint."""

    subject: str
    checkpoint: str


class Record(msgspec.Struct, frozen=True):
    """The part `members`."""

    format: int
    members: list[Bound]


def write(
    store: Store,
    subject: Subject,
    made: Sequence[Checkpoint],
    *,
    reason: str,
    stage: str | None,
) -> Checkpoint:
    """Commit a bundle of these checkpoints, aside."""
    bound = [Bound(str(each.subject), each.id) for each in made]
    with store.draft(subject, reason=reason, stage=stage, aside=True) as draft:
        value = msgspec.to_builtins(Record(FORMAT, bound))
        draft.put(PART, value, split="structure")
        for each in made:
            draft.keep_from(each, under=f"{each.subject}/")
        return draft.commit()


def read(store: Store, bundle: Checkpoint, trust: bool) -> Record:
    """What a bundle binds. Raises BadInput, Corrupt, Unsupported or Denied."""
    if bundle.subject.kind != "bundle":
        raise BadInput(
            f"{bundle.short} of {bundle.subject} is no bundle",
            hint="`holdfast list --kind bundle` shows those that are",
        )
    try:
        found = msgspec.convert(store.value(bundle, PART, trust=trust), Record)
    except msgspec.ValidationError as error:
        raise Corrupt(f"{bundle.short} is no bundle: {error}", where=bundle.id) from None
    if found.format > FORMAT:
        raise Unsupported(
            f"{bundle.short} is a bundle of format {found.format}",
            hint="upgrade Holdfast to use it",
        )
    return found


def find(
    store: Store, bundle: Checkpoint, bound: Bound, lease: Right | None
) -> tuple[Checkpoint, bool]:
    """A member's checkpoint, and whether it had to be made again, aside, from the bundle."""
    with suppress(NotFound):  # pruned: the bundle has its parts
        found = store.resolve(bound.checkpoint)
        if str(found.subject) == bound.subject:
            return found, False
    reason = f"from {bundle.short} of {bundle.subject}"
    with store.draft(bound.subject, reason=reason, aside=True, lease=lease) as draft:
        draft.keep_from(bundle, prefix=f"{bound.subject}/")
        return draft.commit(), True
