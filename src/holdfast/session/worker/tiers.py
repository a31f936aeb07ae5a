"""Tiers below the pickle: a plainer form of a value that can still be kept, or a placeholder."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.protocol.values import NotPlain, decode_plain, encode_plain
from holdfast.session.layout import Record
from holdfast.session.worker.placeholder import Placeholder
from holdfast.session.worker.texts import type_name

# Subclasses of these have a plain form: the builtin type with the same content.
_BASES: tuple[type, ...] = (dict, list, tuple, set, frozenset, str, bytes, int, float)


def lower_tier(member: str, value: object, reason: str, limit: int | None = None) -> Record:
    """The best record that needs no pickle. The last resort, a placeholder, always works."""
    name = type_name(value)
    try:
        plain = plain_form(value)
        data = encode_plain((plain,), limit=limit)
    except (NotPlain, RecursionError):
        pass_on = json_form(value, limit)
        if pass_on is None:
            return placeholder(member, value, reason)
        return Record(members=(member,), tier="json", data=pass_on, type_name=name, reason=reason)
    return Record(members=(member,), tier="msgpack", data=data, type_name=name, reason=reason)


def placeholder(member: str, value: object, reason: str) -> Record:
    """A record that says only what was there, and why it is not."""
    name = type_name(value)
    return Record(members=(member,), tier="placeholder", type_name=name, reason=reason)


def plain_form(value: object) -> object:
    """A value with every subclass of a builtin type replaced by that type. Raises NotPlain."""
    for base in _BASES:
        if isinstance(value, base):
            break
    else:
        return value
    if isinstance(value, dict):
        return {plain_form(k): plain_form(v) for k, v in dict.items(value)}
    if isinstance(value, (list, tuple, set, frozenset)):
        return base(plain_form(item) for item in base.__iter__(value))  # type: ignore[attr-defined]
    if type(value) is bool or type(value) is base:
        return value
    return base(value)  # str, bytes, int or float of its subclass


def json_form(value: object, limit: int | None) -> bytes | None:
    """JSON, where it says the same: it has no limit on depth."""
    if not isinstance(value, (Mapping, list, str, int, float)):
        return None
    import json  # hardly ever needed, and no small part of a worker's start

    try:
        data = json.dumps([value]).encode()
        same = json.loads(data) == [value]
    except (TypeError, ValueError, RecursionError):
        return None
    return data if same and (limit is None or len(data) <= limit) else None


def read(record: Record) -> tuple[object, ...]:
    """The values of a record of a lower tier. Raises Corrupt or ValueError."""
    match record.tier:
        case "msgpack":
            values = decode_plain(bytes(record.data))
            assert isinstance(values, tuple)
            return values
        case "json":
            import json

            return tuple(json.loads(bytes(record.data)))
        case _:
            data = bytes(record.data)
            return tuple(Placeholder(record.type_name, record.reason, data) for _ in record.members)
