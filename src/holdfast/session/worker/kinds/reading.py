"""Where an open file stands, also one in the middle of `for line in file`.

Such a text file does not tell: it has read ahead, and only it knows how far it handed out what it
read. That much is looked up in its memory, and believed only if the file itself agrees.
"""

from __future__ import annotations

import codecs
import ctypes
import gc
import io
import os
from typing import Any

# One byte after the other, with no state between them: any place between two characters will do.
_STATELESS = ("utf-8", "ascii", "iso8859-1", "iso8859-15", "cp1252")


def stateless(encoding: str) -> bool:
    """Whether bytes of this encoding mean the same wherever one begins to read."""
    return codecs.lookup(encoding).name in _STATELESS


# `Any` below: the classes of `io` share no base that says what they can do.
def position(obj: Any) -> int | None:
    """What `tell()` gives, or would give; None when it cannot be told."""
    try:
        told: int = obj.tell()
    except OSError:
        return _inside(obj) if type(obj) is io.TextIOWrapper else None
    return told


def _inside(obj: Any) -> int | None:
    if not stateless(obj.encoding):
        return None
    held = gc.get_referents(obj)
    ahead: int = obj.buffer.tell()  # what is before this place has been read
    for decoder in held:
        if type(decoder) is io.IncrementalNewlineDecoder:
            begun, flags = decoder.getstate()
            ahead -= len(begun) + (flags & 1)  # half a character, or a carriage return
    for chunk in held:
        used = _used(obj, chunk) if type(chunk) is str else None
        if used is None:
            continue
        rest = chunk[used:]
        for newline in ("\n", "\r\n"):
            start = ahead - len(rest.replace("\n", newline).encode(obj.encoding, obj.errors))
            if start >= 0 and _text(obj, start, ahead) == rest:
                return start
    return None


def _used(obj: io.TextIOWrapper, chunk: str) -> int | None:
    """How much of a chunk was handed out: the number behind the reference to it."""
    words = memoryview(ctypes.string_at(id(obj), type(obj).__basicsize__)).cast("l")
    for at, word in enumerate(words[:-1]):
        if word == id(chunk) and 0 <= words[at + 1] <= len(chunk):
            return words[at + 1]
    return None


def _text(obj: io.TextIOWrapper, start: int, end: int) -> str | None:
    """What the file itself has there, its ends of lines as they are read."""
    data = os.pread(obj.fileno(), end - start, start)
    try:
        return io.TextIOWrapper(io.BytesIO(data), obj.encoding, obj.errors).read()
    except UnicodeError:
        return None
