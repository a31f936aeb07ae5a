"""`holdfast diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, files_option, find, trust_option

if TYPE_CHECKING:
    from holdfast.cli.variables import VariableChange
    from holdfast.model.difference import ValueChange
    from holdfast.model.report import Item
    from holdfast.store.comparison import Diff


@click.command("diff")
@click.argument("a", metavar="A", shell_complete=complete_reference)
@click.argument("b", metavar="B", shell_complete=complete_reference)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show what is the same, too, and what changes each time.",
)
@files_option
@trust_option
@click.pass_obj
def command(
    invocation: Invocation, a: str, b: str, everything: bool, files: bool, trust: bool
) -> None:
    """Compare two checkpoints, part by part and value by value.

    Parts that hold a value (split "structure") are compared inside; of the others, the changed
    bytes are counted. Of a session, each variable that changed is named.
    """
    from holdfast.cli import files as states
    from holdfast.cli.values import diff_shape
    from holdfast.cli.variables import compare

    if kept := states.meant(invocation, a, files):
        # The other one must be a file, too.
        other = states.meant(invocation, b, True)
        assert other is not None  # it insists
        states.diff(invocation, kept, other, _values)
        return
    with invocation.store() as store:
        diff = store.diff(find(store, a), find(store, b), trust=trust)
        variables = compare(store, diff, trust=trust)
    text = page(diff, variables, everything)
    invocation.show(diff_shape(diff, variables), lambda: text)
    if not text:
        invocation.tell(f"{diff.before.short} and {diff.after.short} have the same content")


def page(diff: Diff, variables: list[VariableChange] | None, everything: bool) -> str:
    """What differs, as tables; empty when nothing does."""
    from holdfast.cli.table import Column, table
    from holdfast.cli.variables import is_noise
    from holdfast.server.words import size

    values = diff.values
    parts = [part for part in diff.parts if everything or part.change != "same"]
    if variables is not None and not everything:
        values = tuple(each for each in values if not is_noise(each.part, each.path))
        told = {each.part for each in values}
        parts = [
            each
            for each in parts
            if each.name not in ("report", "environment") or each.name in told
        ]
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
    if variables:
        tables.append(
            table(
                (
                    Column("VARIABLE", "bold", cut=2),
                    Column("CHANGE", "cyan"),
                    Column("BEFORE", "red", cut=1),
                    Column("AFTER", "green", cut=1),
                ),
                (
                    (each.name, each.change, _brief(each.before), _brief(each.after))
                    for each in variables
                ),
            )
        )
    if values:
        tables.append(_values(values))
    return "\n\n".join(tables)


def _values(values: tuple[ValueChange, ...]) -> str:
    from holdfast.cli.table import Column, table
    from holdfast.cli.values import brief

    if not values:
        return ""
    return table(
        (
            Column("VALUE", "bold", cut=2),
            Column("BEFORE", "red", cut=1),
            Column("AFTER", "green", cut=1),
        ),
        ((_place(each), brief(each.before), brief(each.after)) for each in values),
    )


def _brief(item: Item | None) -> str:
    """`exact, 24 B`; for what did not come through whole, why."""
    from holdfast.server.words import size

    if item is None:
        return "-"
    more = size(item.size_bytes) if item.size_bytes else item.reason
    return f"{item.outcome}, {more}" if more else item.outcome


def _place(change: ValueChange) -> str:
    """`metrics: loss[0]`, or the part alone when all of it is new or gone."""
    return f"{change.part}: {change.path}" if change.path else change.part
