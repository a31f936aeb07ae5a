"""Plain data on the wire: what a host may read from a worker without unpickling anything."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.msgpack import Ext

from holdfast.model.errors import Corrupt

TUPLE, SET, FROZENSET, INTEGER, COMPLEX, PAIRS, TEXT = range(1, 8)
MAX_DEPTH = 100
# A result is for looking at; a larger one is shown by its repr, and its data stays where it is.
MAX_BYTES = 16 << 20

_encode = msgspec.msgpack.Encoder().encode


class NotPlain(Exception):
    """The value is not plain data."""


def encode_plain(value: object, limit: int | None = MAX_BYTES) -> bytes:
    """Plain data as bytes; raises NotPlain for other types, too deep ones and too much."""
    data = _encode(_wire(value, 0))
    if limit is not None and len(data) > limit:
        raise NotPlain(f"{len(data)} bytes are more than {limit}")
    return data


def decode_plain(data: bytes) -> object:
    """The inverse of `encode_plain`. Raises Corrupt."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise Corrupt(f"not plain data: {error}") from None


def _wire(value: object, depth: int) -> object:
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is bytes:
        return value
    if depth > MAX_DEPTH:
        raise NotPlain(f"more than {MAX_DEPTH} levels, or a cycle")
    convert = _CONVERTERS.get(kind)
    if convert is None:
        raise NotPlain(kind.__name__)
    return convert(value, depth)


def _text(value: str, depth: int) -> object:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return Ext(TEXT, value.encode("utf-8", "surrogatepass"))
    return value


def _integer(value: int, depth: int) -> object:
    if -(1 << 63) <= value < 1 << 64:
        return value
    # Hexadecimal has no limit on digits, as decimal text has.
    return Ext(INTEGER, hex(value).encode())


def _list(value: list[object], depth: int) -> object:
    return [_wire(item, depth + 1) for item in value]


def _dict(value: dict[object, object], depth: int) -> object:
    if all(type(key) is str and (key.isascii() or _text(key, 0) is key) for key in value):
        return {key: _wire(item, depth + 1) for key, item in value.items()}
    return Ext(
        PAIRS, _encode([(_wire(k, depth + 1), _wire(v, depth + 1)) for k, v in value.items()])
    )


def _tuple(value: tuple[object, ...], depth: int) -> object:
    return Ext(TUPLE, _encode([_wire(item, depth + 1) for item in value]))


def _set(value: set[object] | frozenset[object], depth: int) -> object:
    code = SET if type(value) is set else FROZENSET
    return Ext(code, _encode([_wire(item, depth + 1) for item in value]))


def _complex(value: complex, depth: int) -> object:
    return Ext(COMPLEX, _encode([value.real, value.imag]))


# The table is keyed by exact type, so each converter gets what its annotation says.
_CONVERTERS: dict[type, Callable[..., object]] = {
    str: _text,
    int: _integer,
    list: _list,
    dict: _dict,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    complex: _complex,
}


def _extension(code: int, view: memoryview) -> object:
    data = bytes(view)
    match code:
        case 4:
            return int(data, 16)
        case 7:
            return data.decode("utf-8", "surrogatepass")
    items = _decoder.decode(data)
    if not isinstance(items, list):
        raise TypeError(f"extension {code} does not hold an array")
    match code:
        case 1:
            return tuple(items)
        case 2:
            return set(items)
        case 3:
            return frozenset(items)
        case 5:
            return complex(*items)
        case 6:
            return dict(items)
    raise ValueError(f"unknown extension {code}")


_decoder = msgspec.msgpack.Decoder(ext_hook=_extension)
