"""A lineage as a drawing, a line for each checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.moment import now
from holdfast.view.lineage import Lineage, to_ascii
from holdfast.view.table import Column, draws_lines, table
from holdfast.view.words import age, notes, size, stage

_FORKS = 2  # named in one line; the rest is counted


def tree(lineage: Lineage, shorts: dict[str, str]) -> str:
    """The lineage as a drawing, a line for each checkpoint."""

    time = now()
    rows = []
    for row in lineage.rows:
        graph = row.graph if draws_lines() else to_ascii(row.graph)
        checkpoint = row.checkpoint
        if checkpoint is None:
            rows.append((graph, "", "", "", "", ""))
            continue
        remarks = [
            *notes(checkpoint, checkpoint.id == lineage.head),
            *_relations(checkpoint, lineage, shorts),
        ]
        rows.append(
            (
                graph,
                checkpoint.short,
                checkpoint.reason + (f" [{stage(checkpoint)}]" if checkpoint.stage else ""),
                age(checkpoint.time, time),
                size(checkpoint.size_bytes),
                ", ".join(remarks),
            )
        )
    columns = (
        Column("LINEAGE", "blue"),
        Column("ID", "yellow"),
        Column("REASON", cut=1),
        Column("WHEN", "dim"),
        Column("SIZE", "dim", justify="right"),
        Column("NOTES", "cyan", cut=1),
    )
    return table(columns, rows, headings=False)


def _relations(checkpoint: Checkpoint, lineage: Lineage, shorts: dict[str, str]) -> Iterator[str]:
    """Where a checkpoint came from, and what was made of it."""
    target = shorts.get(checkpoint.rollback_of or "", "one that is not in this store")
    if checkpoint.rollback_of and target not in checkpoint.reason:
        yield f"back to {target}"
    for origin in lineage.origins:
        if origin.id in checkpoint.parents:
            yield f"forked from {origin.subject} at {origin.short}"
    forks = [str(each.subject) for each in lineage.forks if checkpoint.id in each.parents]
    if forks:
        more = f" and {len(forks) - _FORKS} more" if len(forks) > _FORKS else ""
        yield f"forked to {', '.join(forks[:_FORKS])}{more}"
