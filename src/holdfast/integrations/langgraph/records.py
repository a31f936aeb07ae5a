"""Records: what is kept of a checkpoint of LangGraph's, in few bytes. Pure.

Format 1 has a checkpoint as LangGraph has it. In format 2 each channel is a member of the record
itself: the fewer nodes there are above a channel, the less is written at each step. In format 3,
ids and times are not texts, either. Whatever is not as LangGraph makes it stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from holdfast.integrations.langgraph.packing import TYPED
from holdfast.model import moment
from holdfast.store.log.records import id_bytes, id_text

# A record is JSON-like, which has no narrower type.
Record = dict[str, Any]

FORMAT = 1
_FLAT, _COMPACT = 2, 3
_CHANNEL = "channel/"


def compact(record: Record) -> Record:
    """A checkpoint's record as it is kept."""
    checkpoint = record["checkpoint"]
    channels = checkpoint.get("channel_values") if isinstance(checkpoint, dict) else None
    if not isinstance(channels, dict) or TYPED in channels:
        return record
    rest = dict(checkpoint)
    del rest["channel_values"]
    members = {f"{_CHANNEL}{name}": value for name, value in channels.items()}
    made = {**record, "langgraph": _FLAT, "checkpoint": rest, **members}
    said = (made.get("parent"), rest.get("id"), rest.get("ts"))
    # Else nobody could tell what was what.
    if all(each is None or isinstance(each, str) for each in said):
        made["langgraph"] = _COMPACT
        _replace(rest, "id", _short_id)
        _replace(rest, "ts", _short_time)
        _replace(made, "parent", _short_id)
        if not made["typed"]:
            del made["typed"]
    return made


def expand(record: Record) -> Record | None:
    """The inverse, for any format; None for one that is not known."""
    kept = record["langgraph"]
    if kept == FORMAT:
        return record
    if kept not in (_FLAT, _COMPACT):
        return None
    names = [name for name in record if name.startswith(_CHANNEL)]
    channels = {name.removeprefix(_CHANNEL): record.pop(name) for name in names}
    made = {"typed": False, **record, "langgraph": FORMAT}
    checkpoint = made.get("checkpoint")
    if isinstance(checkpoint, dict):
        checkpoint["channel_values"] = channels
        if kept == _COMPACT:
            _replace(checkpoint, "id", _long_id)
            _replace(checkpoint, "ts", _long_time)
            _replace(made, "parent", _long_id)
    return made


def _replace(record: Record, name: str, change: Callable[[object], object]) -> None:
    if name in record:
        record[name] = change(record[name])


def _short_id(value: object) -> object:
    found = id_bytes(value) if isinstance(value, str) and value == value.lower() else None
    return found or value


def _long_id(value: object) -> object:
    return id_text(value) if isinstance(value, bytes) else value


def _short_time(value: object) -> object:
    """Microseconds, where that says all of it."""
    try:
        time = datetime.fromisoformat(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return value
    return moment.to_micros(time) if time.tzinfo is UTC and time.isoformat() == value else value


def _long_time(value: object) -> object:
    return moment.from_micros(value).isoformat() if isinstance(value, int) else value
