"""What differs between two checkpoints, as tables."""

from __future__ import annotations

from holdfast.model.difference import ValueChange
from holdfast.model.report import Item
from holdfast.session.variables import VariableChange, is_noise, told
from holdfast.store.comparison import Diff
from holdfast.view.table import Column, table
from holdfast.view.values import brief
from holdfast.view.words import size


def page(diff: Diff, variables: list[VariableChange] | None, everything: bool) -> str:
    """What differs, as tables; empty when nothing does."""

    found = diff.values
    parts = [part for part in diff.parts if everything or part.change != "same"]
    if variables is not None and not everything:
        found = tuple(each for each in found if not is_noise(each.part, each.path))
        named = {each.part for each in found}
        parts = [
            each
            for each in parts
            if each.name not in ("report", "environment") or each.name in named
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
    if found:
        tables.append(values(found))
    return "\n\n".join(tables)


def values(changes: tuple[ValueChange, ...]) -> str:
    """Values that differ, and where they stand; empty when there are none."""
    if not changes:
        return ""
    return table(
        (
            Column("VALUE", "bold", cut=2),
            Column("BEFORE", "red", cut=1),
            Column("AFTER", "green", cut=1),
        ),
        ((_place(each), brief(each.before), brief(each.after)) for each in changes),
    )


def _brief(item: Item | None) -> str:
    return "-" if item is None else told(item)


def _place(change: ValueChange) -> str:
    """`metrics: loss[0]`, or the part alone when all of it is new or gone."""
    return f"{change.part}: {change.path}" if change.path else change.part
