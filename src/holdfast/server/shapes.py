"""The JSON shapes of values: the same on the command line and over HTTP.

Shapes only ever gain fields. They are written down in docs/reference/json.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.model.checkpoint import Checkpoint, HeadMove, Manifest
from holdfast.model.errors import HoldfastError
from holdfast.model.moment import to_text
from holdfast.model.report import Item, Problem, Report, Verification
from holdfast.view.lineage import Lineage

if TYPE_CHECKING:
    from holdfast.drill import Drill
    from holdfast.store import SubjectSummary
    from holdfast.store.collect import PruneReport
    from holdfast.store.comparison import Diff
    from holdfast.store.transfer.importing import ImportReport

Shape = dict[str, object]


def checkpoint(value: Checkpoint) -> Shape:
    return {
        "id": value.id,
        "short": value.short,
        "digest": value.digest,
        "subject": str(value.subject),
        "kind": value.subject.kind,
        "name": value.subject.name,
        "parents": list(value.parents),
        "reason": value.reason,
        "stage": value.stage,
        "time": to_text(value.time),
        "size_bytes": value.size_bytes,
        "stored_bytes": value.stored_bytes,
        "part_count": value.part_count,
        "sequence": value.sequence,
        "tags": dict(value.tags),
        "pinned": value.pinned,
        "rollback_of": value.rollback_of,
        "signer": value.signer,
        "foreign": value.foreign,
    }


def checkpoints(values: Sequence[Checkpoint]) -> Shape:
    return {"checkpoints": [checkpoint(value) for value in values]}


def item(value: Item) -> Shape:
    return {
        "name": value.name,
        "outcome": value.outcome,
        "tier": value.tier,
        "size_bytes": value.size_bytes,
        "reason": value.reason,
        "type_name": value.type_name,
        "summary": value.summary,
    }


def manifest(value: Manifest, found: Report | None = None) -> Shape:
    return {
        "checkpoint": checkpoint(value.checkpoint),
        "parts": [
            {"name": part.name, "size": part.size, "split": part.split, "root": part.root}
            for part in value.parts
        ],
        "report": [item(each) for each in found.items] if found else None,
    }


def subject(value: SubjectSummary) -> Shape:
    return {
        "subject": str(value.subject),
        "kind": value.subject.kind,
        "name": value.subject.name,
        "head": checkpoint(value.head) if value.head else None,
        "count": value.count,
        "size_bytes": value.size_bytes,
        "time": to_text(value.time),
    }


def move(value: HeadMove) -> Shape:
    return {
        "subject": str(value.subject),
        "sequence": value.sequence,
        "time": to_text(value.time),
        "verb": value.verb,
        "before": value.before,
        "after": value.after,
    }


def lineage(value: Lineage) -> Shape:
    return {
        "subject": str(value.subject),
        "head": value.head,
        "checkpoints": [checkpoint(each) for each in value.checkpoints],
        "origins": [checkpoint(each) for each in value.origins],
        "forks": [checkpoint(each) for each in value.forks],
        "moves": [move(each) for each in value.moves],
    }


def problem(value: Problem) -> Shape:
    return {
        "where": value.where,
        "what": value.what,
        "affects": list(value.affects),
        "hint": value.hint,
    }


def verification(value: Verification) -> Shape:
    return {
        "ok": value.ok,
        "deep": value.deep,
        "problems": [problem(each) for each in value.problems],
        "notes": list(value.notes),
        "checkpoints": value.checkpoints,
        "chunks": value.chunks,
        "bytes_read": value.bytes_read,
    }


def drill(value: Drill) -> Shape:
    return {
        "checkpoint": checkpoint(value.checkpoint),
        "ok": value.ok,
        "tried": value.tried,
        "problems": list(value.problems),
        "notes": list(value.notes),
        "items": value.items,
        "seconds": round(value.seconds, 3),
    }


def diff(value: Diff) -> Shape:
    """Part by part; what is inside parts may be anything, and is for the command line to show."""
    return {
        "before": value.before.id,
        "after": value.after.id,
        "parts": [
            {
                "name": part.name,
                "change": part.change,
                "size_before": part.size_before,
                "size_after": part.size_after,
                "changed_bytes": part.changed_bytes,
            }
            for part in value.parts
        ],
    }


def pruning(value: PruneReport) -> Shape:
    return {
        "dry_run": value.dry_run,
        "removed": [checkpoint(each) for each in value.removed],
        "kept": [{"checkpoint": checkpoint(each), "why": why} for each, why in value.kept],
        "reclaimed_bytes": value.reclaimed_bytes,
        "pending_bytes": value.pending_bytes,
        "log_bytes": value.log_bytes,
        "problems": [str(each) for each in value.problems],
        "damaged": [str(each) for each in value.damaged],
        "owned": list(value.owned),
    }


def error(value: HoldfastError) -> Mapping[str, Shape]:
    return {"error": {"kind": value.kind, "message": str(value), "hint": value.hint}}


def imported(report: ImportReport) -> Shape:
    return {
        "checkpoint": checkpoint(report.checkpoint),
        "imported": [checkpoint(one) for one in report.imported],
        "already": [checkpoint(one) for one in report.already],
        "archive_bytes": report.archive_bytes,
        "dry_run": report.dry_run,
    }
