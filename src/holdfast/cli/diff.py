"""`holdfast diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, find, trust_option

if TYPE_CHECKING:
    from holdfast.store.comparison import Diff, ValueChange


@click.command("diff")
@click.argument("a", metavar="A", shell_complete=complete_reference)
@click.argument("b", metavar="B", shell_complete=complete_reference)
@click.option("--all", "everything", is_flag=True, help="Show the parts that are the same too.")
@trust_option
@click.pass_obj
def command(invocation: Invocation, a: str, b: str, everything: bool, trust: bool) -> None:
    """Compare two checkpoints, part by part and value by value.

    Parts that hold a value (split "structure") are compared inside; of the others, the changed
    bytes are counted.
    """
    from holdfast.cli.values import diff_shape

    with invocation.store() as store:
        diff = store.diff(find(store, a), find(store, b), trust=trust)
    invocation.show(diff_shape(diff), lambda: _page(diff, everything))
    if diff.same:
        invocation.tell(f"{diff.before.short} and {diff.after.short} have the same content")


def _page(diff: Diff, everything: bool) -> str:
    from holdfast.cli.table import Column, table
    from holdfast.cli.values import brief
    from holdfast.server.words import size

    parts = [part for part in diff.parts if everything or part.change != "same"]
    tables = []
    if parts:
        tables.append(
            table(
                (
                    Column("PART", "bold", cut=2),
                    Column("CHANGE", "cyan"),
                    Column("BEFORE", justify="right"),
                    Column("AFTER", justify="right"),
                    Column("CHANGED", justify="right"),
                ),
                (
                    (
                        part.name,
                        part.change,
                        "" if part.change == "added" else size(part.size_before),
                        "" if part.change == "removed" else size(part.size_after),
                        "" if part.change == "same" else size(part.changed_bytes),
                    )
                    for part in parts
                ),
            )
        )
    if diff.values:
        tables.append(
            table(
                (
                    Column("VALUE", "bold", cut=2),
                    Column("BEFORE", "red", cut=1),
                    Column("AFTER", "green", cut=1),
                ),
                ((_place(each), brief(each.before), brief(each.after)) for each in diff.values),
            )
        )
    return "\n\n".join(tables)


def _place(change: ValueChange) -> str:
    """`metrics: loss[0]`, or the part alone when all of it is new or gone."""
    return f"{change.part}: {change.path}" if change.path else change.part
