"""Differences as `--json` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.model.difference import ValueChange
    from holdfast.session.variables import VariableChange
    from holdfast.store.comparison import Diff


def diff_shape(diff: Diff, variables: list[VariableChange] | None) -> dict[str, object]:
    from holdfast.server import shapes

    return {
        **shapes.diff(diff),
        "values": [change_shape(each) for each in diff.values],
        "variables": None if variables is None else [_variable(each) for each in variables],
    }


def _variable(change: VariableChange) -> dict[str, object]:
    from holdfast.server import shapes

    return {
        "name": change.name,
        "change": change.change,
        "before": shapes.item(change.before) if change.before else None,
        "after": shapes.item(change.after) if change.after else None,
    }


def change_shape(change: ValueChange) -> dict[str, object]:
    from holdfast.model.difference import ABSENT

    sides = {"before": change.before, "after": change.after}
    there = {name: value for name, value in sides.items() if value is not ABSENT}
    return {"part": change.part, "path": change.path, **there}
