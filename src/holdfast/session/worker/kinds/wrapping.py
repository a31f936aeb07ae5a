"""How a file object is put together: a raw file, a buffer around it, and text around that."""

from __future__ import annotations

import io
from typing import Any

# `Any` below: the many classes of `io` share no base that says what they can do.


def raw_mode(mode: str) -> str:
    """Without what makes or empties a file."""
    return "rb+" if "+" in mode else "ab" if "a" in mode else "rb" if "r" in mode else "wb"


def wrapped(raw: io.FileIO, form: str, text: Any, room: int = 0) -> Any:
    """A raw file in the form that `taken_apart` found, with a buffer for at least `room` bytes."""
    if form == "FileIO":
        return raw
    kind: Any = {
        "BufferedReader": io.BufferedReader,
        "BufferedWriter": io.BufferedWriter,
        "BufferedRandom": io.BufferedRandom,
    }[form.removeprefix("Text:")]
    buffered = kind(raw, max(room, io.DEFAULT_BUFFER_SIZE))
    if not form.startswith("Text:"):
        return buffered
    encoding, errors, line_buffering, mode = text
    made = io.TextIOWrapper(buffered, encoding, errors, None, line_buffering)
    made.mode = mode  # type: ignore[misc]  # as `open` does it
    return made


def taken_apart(obj: Any) -> tuple[str, Any, io.FileIO | None]:
    """How the file is wrapped, and the raw file."""
    form, text, buffered = type(obj).__name__, None, obj
    try:
        if type(obj) is io.TextIOWrapper:
            buffered = obj.buffer
            form = f"Text:{type(buffered).__name__}"
            mode = getattr(obj, "mode", "r")
            text = (obj.encoding, obj.errors, obj.line_buffering, mode)
        raw = buffered if type(buffered) is io.FileIO else getattr(buffered, "raw", None)
    except ValueError:  # it was detached
        return form, text, None
    return form, text, raw if type(raw) is io.FileIO else None
