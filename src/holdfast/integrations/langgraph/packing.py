"""Packing: the values of channels as JSON-like structure, so that what did not change is kept once.

Plain dicts, lists, texts, numbers and bytes stay what they are. Everything else is given to
LangGraph's own serializer, piece by piece: it alone decides what may be rebuilt.
"""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.model.errors import Corrupt
from holdfast.state.rows import FEWEST, Rows

TYPED = "$typed"
_DEEP = 60  # what is nested deeper is one piece
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_AS_IS = frozenset((bool, float, bytes, type(None)))
_FLAT = _AS_IS | {str, int}

Known = dict[int, Rows]  # by the address of the first dict

# Channels have values of any type: hence the Any in this module.


class Serializer(Protocol):
    """What is needed of LangGraph's serializer."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]: ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any: ...


class Packer:
    """Packs one record. `typed` says afterwards whether anything needed the serializer.

    `last` are the messages and the like that an earlier record had; they are not looked at again
    while nothing in them changed. `rows` are those of this one.
    """

    def __init__(self, serde: Serializer, last: Known | None = None) -> None:
        self._serde = serde
        self.typed = False
        self._last = last or {}
        self.rows: Known = {}

    def pack(self, value: Any, depth: int = 0) -> Any:
        cls = type(value)
        if cls is str:
            return value if value.isascii() or _is_text(value) else self._piece(value)
        if cls in _AS_IS or (cls is int and _INT_MIN <= value <= _INT_MAX):
            return value
        if cls is dict and depth < _DEEP and _has_plain_keys(value):
            packed = dict(value)
            for key, item in packed.items():
                if type(item) is not str or not item.isascii():
                    packed[key] = self.pack(item, depth + 1)
            return packed
        if cls is list and depth < _DEEP:
            return self._list(list(value), depth)
        return self._piece(value)

    def _list(self, value: list[Any], depth: int) -> list[Any]:
        rows = self._last.get(id(value[0])) if value else None
        if rows is not None and not rows.begin(value):
            rows = None
        first = end = len(rows.dicts) if rows else 0
        more = [self.pack(item, depth + 1) for item in value[first:]]
        for item, became in zip(value[first:], more, strict=True):
            if type(item) is not dict or not _FLAT.issuperset(map(type, became.values())):
                break
            end += 1
        if rows is not None:
            packed = rows.packed + more
            if end > first:
                rows = rows.longer(value[first:end], more[: end - first])
        else:
            packed = more
            rows = Rows.of(value[:end], more[:end]) if end >= FEWEST else None
        if rows is not None:
            self.rows[id(value[0])] = rows
        return packed

    def _piece(self, value: Any) -> dict[str, Any]:
        self.typed = True
        if type(value) is int:  # beyond what the serializer has a form for
            return {TYPED: ["int", hex(value).encode()]}
        kind, data = self._serde.dumps_typed(value)
        return {TYPED: [kind, bytes(data)]}


def unpack(packed: Any, serde: Serializer) -> Any:
    """The inverse; raises Corrupt for what `Packer` never made."""
    if type(packed) is dict:
        if TYPED in packed:
            return _unpack_piece(packed, serde)
        return {key: unpack(item, serde) for key, item in packed.items()}
    return [unpack(item, serde) for item in packed] if type(packed) is list else packed


def _unpack_piece(packed: dict[str, Any], serde: Serializer) -> Any:
    match packed[TYPED]:
        case ["int", bytes(digits)]:
            return int(digits, 16)
        case [str(kind), bytes(data)]:
            return serde.loads_typed((kind, data))
    raise Corrupt("a value of a channel is not what was saved")


def _has_plain_keys(value: dict[Any, Any]) -> bool:
    for key in value:
        if type(key) is not str or not (key.isascii() or _is_text(key)):
            return False
    return TYPED not in value


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
