"""The numbers in CRIU's images: seven bits a byte, the lowest first."""

from __future__ import annotations

from holdfast.model.errors import Corrupt


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The number there, and where the next thing begins. Raises Corrupt."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise Corrupt("an image of CRIU has a broken number")


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
