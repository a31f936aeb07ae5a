"""`holdfast log`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_subject, find_subject

if TYPE_CHECKING:
    from holdfast.view.lineage import Lineage


@click.command("log")
@click.argument("subject", shell_complete=complete_subject)
@click.option("--moves", is_flag=True, help="Show each move of the head instead of the tree.")
@click.pass_obj
def command(invocation: Invocation, subject: str, moves: bool) -> None:
    """Draw the lineage of a subject: head, forks and rollbacks.

    Newest first; a full circle is the head, and a line leads from each checkpoint to its parent.
    Lines that do not descend from each other have a gap between them.
    """
    from holdfast.server import shapes
    from holdfast.view.lineage import trace
    from holdfast.view.tree import tree

    with invocation.store() as store:
        wanted = find_subject(store, subject)
        head = store.head(wanted)
        everything = store.list()
        lineage = trace(wanted, everything, head.id if head else None, store.history(wanted))
        invocation.doubt(store)
    shorts = {each.id: each.short for each in everything}
    invocation.show(
        shapes.lineage(lineage),
        lambda: _moves(lineage, shorts) if moves else tree(lineage, shorts),
    )


def _moves(lineage: Lineage, shorts: dict[str, str]) -> str:
    from holdfast.view.table import Column, table
    from holdfast.view.words import day

    def name(id: str | None) -> str:  # noqa: A002
        return shorts.get(id, "(gone)") if id else "-"

    return table(
        (Column("TIME", "dim"), Column("VERB", "bold"), Column("FROM"), Column("TO", "yellow")),
        (
            (day(move.time), move.verb, name(move.before), name(move.after))
            for move in reversed(lineage.moves)
        ),
    )
