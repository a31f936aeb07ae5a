"""The messages in CRIU's images: fields with a number, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.model.errors import Corrupt
from holdfast.oci.memory.varint import read_varint

_SIZES = {1: 8, 5: 4}  # bytes of a field, by its wire type


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message: their numbers, and their bytes with key and length. Raises
    Corrupt."""
    at = 0
    while at < len(message):
        start = at
        key, at = read_varint(message, at)
        match key & 7:
            case 0:
                _, at = read_varint(message, at)
            case 2:
                length, at = read_varint(message, at)
                at += length
            case wire if wire in _SIZES:
                at += _SIZES[wire]
            case wire:
                raise Corrupt(f"an image of CRIU has a field of the unknown kind {wire}")
        if at > len(message):
            raise Corrupt("an image of CRIU has a field that ends too late")
        yield key >> 3, message[start:at]


def body(field: bytes) -> bytes:
    """What is in a field with a length."""
    _, at = read_varint(field, 0)
    _, at = read_varint(field, at)
    return field[at:]


def number(field: bytes) -> int:
    """What a field says that is a number."""
    _, at = read_varint(field, 0)
    return read_varint(field, at)[0]
