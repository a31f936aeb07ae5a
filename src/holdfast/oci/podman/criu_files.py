"""CRIU's `files.img`: the container's root is let have other permissions than it had.

Engines do not agree about those of a root directory that an image says nothing of (Podman: 0555,
others: 0755), an archive cannot bring them along, and CRIU compares them before it restores.
"""

from __future__ import annotations

import struct

from holdfast.model.errors import Corrupt
from holdfast.oci.memory.fields import body, fields
from holdfast.oci.memory.varint import read_varint, varint

FILES = "files.img"
_MAGIC = 8
_LENGTH = struct.Struct("<I")
_REGULAR = 3  # of a file: its description, if it is a plain file or a directory
_NAME, _MODE = 6, 10  # of that description


def loosen_root(data: bytes) -> bytes:
    """The same image, in which nothing is said about the permissions of `/`; raises Corrupt."""
    out = bytearray(data[:_MAGIC])
    at = _MAGIC
    while at < len(data):
        start = at + _LENGTH.size
        end = start + int.from_bytes(data[at:start], "little")
        if end > len(data):
            raise Corrupt("files.img ends too early")
        message = b"".join(_file(number, field) for number, field in fields(data[start:end]))
        out += _LENGTH.pack(len(message)) + message
        at = end
    return bytes(out)


def _file(number: int, field: bytes) -> bytes:
    if number != _REGULAR:
        return field
    key = read_varint(field, 0)[1]
    found = list(fields(body(field)))
    names = [body(each) for number, each in found if number == _NAME]
    if names != [b"/"]:
        return field
    kept = b"".join(each for number, each in found if number != _MODE)
    return field[:key] + varint(len(kept)) + kept
