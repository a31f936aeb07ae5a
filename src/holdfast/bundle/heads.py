"""Bundles of subjects that nobody runs: their heads are bound, and moved, as they stand."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.bundle import record
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, NotFound
from holdfast.model.subject import Subject
from holdfast.store import Store


def bind(store: Store, bundle: Subject, subjects: Sequence[Subject], reason: str) -> Checkpoint:
    """Bind the heads of these subjects. Raises NotFound for one without, and BadInput."""
    if bundle.kind != "bundle":
        raise BadInput(f"{bundle} is no bundle", hint=f"bundle/{bundle.name}")
    if not subjects or len(set(subjects)) != len(subjects):
        raise BadInput("a bundle binds one or more subjects, each once")
    made: list[Checkpoint] = []
    for subject in subjects:
        head = store.head(subject)
        if head is None or subject.kind == "bundle":
            raise NotFound(f"{subject} has no checkpoint that could be bound")
        made.append(head)
    bound = record.write(store, bundle, made, reason=reason, stage=None)
    return store.move_heads(bound, verb="checkpoint")[0]


def restore(store: Store, bundle: Checkpoint, *, trust: bool) -> tuple[Checkpoint, ...]:
    """Move the heads of all members, and the bundle's own, to where they were; or none.

    Raises Owned when somebody runs one of them, Corrupt, Denied and Unsupported.
    """
    found = [
        record.find(store, bundle, bound, None)[0]
        for bound in record.read(store, bundle, trust).members
    ]
    return store.move_heads(*found, bundle, trust=trust)
