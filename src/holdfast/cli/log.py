"""`holdfast log`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_subject

if TYPE_CHECKING:
    from holdfast.server.lineage import Lineage


@click.command("log")
@click.argument("subject", shell_complete=complete_subject)
@click.option("--moves", is_flag=True, help="Show each move of the head instead of the tree.")
@click.pass_obj
def command(invocation: Invocation, subject: str, moves: bool) -> None:
    """Draw the lineage of a subject: head, forks and rollbacks.

    Newest first; a full circle is the head, and a line leads from each checkpoint to its parent.
    """
    from holdfast.model.errors import NotFound
    from holdfast.model.subject import Subject
    from holdfast.server import shapes
    from holdfast.server.lineage import trace

    wanted = Subject.parse(subject)
    with invocation.store() as store:
        head = store.head(wanted)
        everything = store.list()
        lineage = trace(wanted, everything, head.id if head else None, store.history(wanted))
    if not lineage.rows and not lineage.moves:
        raise NotFound(f"no checkpoints of {wanted}", hint="`holdfast list` shows all there are")
    shorts = {each.id: each.short for each in everything}
    invocation.show(
        shapes.lineage(lineage),
        lambda: _moves(lineage, shorts) if moves else _tree(lineage, shorts),
    )


def _tree(lineage: Lineage, shorts: dict[str, str]) -> str:
    from rich.text import Text

    from holdfast.cli.table import draws_lines, render
    from holdfast.model.moment import now
    from holdfast.server.lineage import to_ascii
    from holdfast.server.words import age, notes, printable, size

    time = now()
    width = max((len(row.graph) for row in lineage.rows), default=0)
    origins = {each.id: each for each in lineage.origins}
    text = Text()
    for row in lineage.rows:
        graph = row.graph if draws_lines() else to_ascii(row.graph)
        checkpoint = row.checkpoint
        if checkpoint is None:
            text.append(graph + "\n", "blue")
            continue
        text.append(graph.ljust(width) + "  ", "blue")
        text.append(checkpoint.short, "yellow")
        text.append(f"  {printable(checkpoint.reason)}")
        if checkpoint.stage:
            text.append(f" [{printable(checkpoint.stage)}]")
        text.append(f"  {age(checkpoint.time, time)}, {size(checkpoint.size_bytes)}", "dim")
        remarks = notes(checkpoint, checkpoint.id == lineage.head)
        target = shorts.get(checkpoint.rollback_of or "", "a deleted one")
        if checkpoint.rollback_of and target not in checkpoint.reason:
            remarks.append(f"back to {target}")
        remarks += [
            f"forked from {origins[parent].subject} at {origins[parent].short}"
            for parent in checkpoint.parents
            if parent in origins
        ]
        remarks += [
            f"forked to {fork.subject}" for fork in lineage.forks if checkpoint.id in fork.parents
        ]
        if remarks:
            text.append("  " + printable(", ".join(remarks)), "cyan")
        text.append("\n")
    text.rstrip()
    return render(text)


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
