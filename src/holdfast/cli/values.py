"""JSON-like values of `structure` parts: as JSON, and in a few words."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.cli.variables import VariableChange
    from holdfast.model.difference import ValueChange
    from holdfast.store.comparison import Diff

_BRIEF = 60


def plain(value: object) -> object:
    """What JSON has no word for: bytes become `{"$bytes": base64}`."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    raise TypeError(f"a {type(value).__name__} has no place in JSON")


def to_json(value: object) -> str:
    """The value as JSON text, keys in order."""
    return json.dumps(value, indent=2, sort_keys=True, default=plain)


def brief(value: object) -> str:
    """The value in one short line; `-` where there is none."""
    from holdfast.model.difference import ABSENT

    if value is ABSENT:
        return "-"
    text = json.dumps(value, ensure_ascii=False, default=plain)
    return text if len(text) <= _BRIEF else text[: _BRIEF - 1] + "…"


def diff_shape(diff: Diff, variables: list[VariableChange] | None) -> dict[str, object]:
    return {
        "before": diff.before.id,
        "after": diff.after.id,
        "parts": [
            {
                "name": part.name,
                "change": part.change,
                "size_before": part.size_before,
                "size_after": part.size_after,
                "changed_bytes": part.changed_bytes,
            }
            for part in diff.parts
        ],
        "values": [change_shape(each) for each in diff.values],
        "variables": None if variables is None else [_variable(each) for each in variables],
    }


def _variable(change: VariableChange) -> dict[str, object]:
    from holdfast.server.shapes import item

    return {
        "name": change.name,
        "change": change.change,
        "before": item(change.before) if change.before else None,
        "after": item(change.after) if change.after else None,
    }


def change_shape(change: ValueChange) -> dict[str, object]:
    from holdfast.model.difference import ABSENT

    sides = {"before": change.before, "after": change.after}
    there = {name: value for name, value in sides.items() if value is not ABSENT}
    return {"part": change.part, "path": change.path, **there}
