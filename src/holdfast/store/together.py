"""Several subjects at once: their heads move by one entry of the log, so all of them or none.

Their checkpoints are made aside first, in drafts that say so: each is durable, but no head has come
to it. Whoever is killed before the entry leaves checkpoints that nothing descends from, and every
subject where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue, Record
from holdfast.store.log.entries import Bound, Entry, Moves

Verb = Literal["checkpoint", "restore"]


def move_heads(
    ledger: Ledger, targets: list[Record], fences: Mapping[str, int], verb: Verb
) -> tuple[Checkpoint, ...]:
    """Move the head of each target's subject to it. Raises NotFound, Conflict or LeaseLost."""
    subjects = [target.commit.subject for target in targets]
    if not targets or len(set(subjects)) != len(subjects):
        raise BadInput("heads that move together are of different subjects, and at least one")

    def build(now: Catalogue) -> tuple[Entry, bytes]:
        heads = []
        for target, name in zip(targets, subjects, strict=True):
            fence = fences.get(name, 0)
            now.check_right(name, fence)
            now.record(target.commit.id)
            before = now.heads.get(name)
            heads.append(Bound(subject=name, before=before, after=target.commit.id, fence=fence))
        return Moves(heads=tuple(heads), verb=verb, time=now.next_time(moment.now())), b""

    now = ledger.append(build)
    return tuple(now.record(target.commit.id).checkpoint() for target in targets)
