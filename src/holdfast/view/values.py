"""JSON-like values of `structure` parts: as JSON, and in a few words."""

from __future__ import annotations

import base64
import json

from holdfast.model.difference import ABSENT

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
    if value is ABSENT:
        return "-"
    text = json.dumps(value, ensure_ascii=False, default=plain)
    return text if len(text) <= _BRIEF else text[: _BRIEF - 1] + "…"
