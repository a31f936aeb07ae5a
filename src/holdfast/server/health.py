"""The health of a store: space by kind, how much sharing saves and saved, the last verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.moment import to_text
from holdfast.server.shapes import Shape
from holdfast.view import verified

if TYPE_CHECKING:
    from holdfast.store import Store

POINTS = 120  # of the plot


def measure(store: Store) -> Shape:
    """Everything there is to tell. Nothing but the log and the packs' tables is read."""
    usage = store.usage()
    plan = store.prune(dry_run=True)
    checkpoints = store.list()[::-1]
    return {
        "usage": {
            **asdict(usage),
            "disk_bytes": usage.disk_bytes,
            "dedup_ratio": usage.dedup_ratio,
            "prune_would_remove": len(plan.removed),
            "prune_would_free_bytes": plan.reclaimed_bytes,
        },
        "kinds": _kinds(checkpoints),
        "over_time": _over_time(checkpoints),
        "verified": verified.last(store.url),
    }


def _kinds(checkpoints: Sequence[Checkpoint]) -> list[Shape]:
    subjects: dict[str, set[str]] = {}
    content: Counter[str] = Counter()
    stored: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for each in checkpoints:
        kind = each.subject.kind
        subjects.setdefault(kind, set()).add(each.subject.name)
        count[kind] += 1
        content[kind] += each.size_bytes
        stored[kind] += each.stored_bytes
    return [
        {
            "kind": kind,
            "subjects": len(names),
            "checkpoints": count[kind],
            "content_bytes": content[kind],
            "stored_bytes": stored[kind],
        }
        for kind, names in sorted(subjects.items(), key=lambda each: -stored[each[0]])
    ]


def _over_time(oldest_first: Sequence[Checkpoint]) -> list[Shape]:
    """How content and stored bytes grew, in so many points at most; the last one is always in."""
    points: list[Shape] = []
    content = stored = 0
    step = max(1, -(-len(oldest_first) // POINTS))
    for number, each in enumerate(oldest_first, 1):
        content += each.size_bytes
        stored += each.stored_bytes
        if number % step == 0 or number == len(oldest_first):
            points.append(
                {
                    "time": to_text(each.time),
                    "checkpoints": number,
                    "content_bytes": content,
                    "stored_bytes": stored,
                }
            )
    return points
