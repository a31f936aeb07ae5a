"""`holdfast log`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_subject, find_subject

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.server.lineage import Lineage

_FORKS = 2  # named in one line; the rest is counted


@click.command("log")
@click.argument("subject", shell_complete=complete_subject)
@click.option("--moves", is_flag=True, help="Show each move of the head instead of the tree.")
@click.pass_obj
def command(invocation: Invocation, subject: str, moves: bool) -> None:
    """Draw the lineage of a subject: head, forks and rollbacks.

    Newest first; a full circle is the head, and a line leads from each checkpoint to its parent.
    """
    from holdfast.server import shapes
    from holdfast.server.lineage import trace

    with invocation.store() as store:
        wanted = find_subject(store, subject)
        head = store.head(wanted)
        everything = store.list()
        lineage = trace(wanted, everything, head.id if head else None, store.history(wanted))
    shorts = {each.id: each.short for each in everything}
    invocation.show(
        shapes.lineage(lineage),
        lambda: _moves(lineage, shorts) if moves else tree(lineage, shorts),
    )


def tree(lineage: Lineage, shorts: dict[str, str]) -> str:
    """The lineage as a drawing, a line for each checkpoint."""
    from holdfast.cli.table import Column, draws_lines, table
    from holdfast.model.moment import now
    from holdfast.server.lineage import to_ascii
    from holdfast.server.words import age, notes, size

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
                checkpoint.reason + (f" [{checkpoint.stage}]" if checkpoint.stage else ""),
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
    target = shorts.get(checkpoint.rollback_of or "", "a deleted one")
    if checkpoint.rollback_of and target not in checkpoint.reason:
        yield f"back to {target}"
    for origin in lineage.origins:
        if origin.id in checkpoint.parents:
            yield f"forked from {origin.subject} at {origin.short}"
    forks = [str(each.subject) for each in lineage.forks if checkpoint.id in each.parents]
    if forks:
        more = f" and {len(forks) - _FORKS} more" if len(forks) > _FORKS else ""
        yield f"forked to {', '.join(forks[:_FORKS])}{more}"


def _moves(lineage: Lineage, shorts: dict[str, str]) -> str:
    from holdfast.cli.table import Column, table
    from holdfast.server.words import day

    def name(id: str | None) -> str:  # noqa: A002
        return shorts.get(id, "(gone)") if id else "-"

    return table(
        (Column("TIME", "dim"), Column("VERB", "bold"), Column("FROM"), Column("TO", "yellow")),
        (
            (day(move.time), move.verb, name(move.before), name(move.after))
            for move in reversed(lineage.moves)
        ),
    )
