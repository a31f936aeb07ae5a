"""The contents of a checkpoint and the differences of two, as JSON of a bounded size."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.model.difference import ABSENT, ValueChange
from holdfast.server import shapes
from holdfast.server.shapes import Shape, item

if TYPE_CHECKING:
    from holdfast.session.variables import VariableChange
    from holdfast.store.comparison import Diff
    from holdfast.view.contents import Contents, Variable

MOST_NODES = 5000  # of one value
MOST_CHANGES = 2000
LONGEST = 4000  # characters of one text


class _Budget:
    def __init__(self, nodes: int = MOST_NODES) -> None:
        self.left = nodes


def bounded(value: object, budget: _Budget | None = None) -> object:
    """A JSON-like value that JSON can hold, cut where it is too long: `{"$more": ...}` says so."""
    budget = budget or _Budget()
    budget.left -= 1
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else {"$number": str(value)}
        case str():
            return value if len(value) <= LONGEST else value[:LONGEST] + "…"
        case bytes() | bytearray() | memoryview():
            return {"$bytes": len(value)}
        case list() | tuple():
            shown: list[object] = []
            for each in value:
                if budget.left <= 0:
                    return [*shown, {"$more": len(value) - len(shown)}]
                shown.append(bounded(each, budget))
            return shown
        case dict():
            pairs: dict[str, object] = {}
            for key, each in value.items():
                if budget.left <= 0:
                    pairs["$more"] = len(value) - len(pairs)
                    break
                pairs[str(key)] = bounded(each, budget)
            return pairs
    return {"$text": str(value)[:LONGEST]}


def contents(value: Contents) -> Shape:
    files = None
    if value.files is not None:
        files = [
            {"path": _utf8(each.path), "kind": each.kind, "size": each.size, "time": each.modified}
            for each in value.files
        ]
    return {
        "variables": None if value.variables is None else [_variable(e) for e in value.variables],
        "state": bounded(value.state),
        "has_state": value.has_state,
        "files": files,
        "more_files": value.more_files,
        "memory": None if value.memory is None else asdict(value.memory),
        "versions": dict(value.versions),
    }


def _variable(value: Variable) -> Shape:
    array = value.preview.array
    return {
        "name": _utf8(value.name),
        "type": value.preview.type_name,
        "text": _utf8(value.preview.text),
        "source": value.source,
        "array": None if array is None else asdict(array),
    }


def difference(diff: Diff, variables: list[VariableChange] | None) -> Shape:
    """What `holdfast diff --json` says; long values are cut, and so are long lists of them."""
    return {
        **shapes.diff(diff),
        "values": [_change(each) for each in diff.values[:MOST_CHANGES]],
        "more_values": max(0, len(diff.values) - MOST_CHANGES),
        "variables": None
        if variables is None
        else [
            {
                "name": _utf8(each.name),
                "change": each.change,
                "before": item(each.before) if each.before else None,
                "after": item(each.after) if each.after else None,
            }
            for each in variables
        ],
    }


def _change(change: ValueChange) -> Shape:
    sides = {"before": change.before, "after": change.after}
    there = {
        name: bounded(value, _Budget(200)) for name, value in sides.items() if value is not ABSENT
    }
    return {"part": change.part, "path": change.path, **there}


def _utf8(text: str) -> str:
    """Names may hold half characters, which no answer can."""
    return text.encode("utf-8", "replace").decode()
