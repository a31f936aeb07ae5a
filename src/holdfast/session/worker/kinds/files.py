"""Open files: opened again at their position, as long as the file is still the same.

A file that was read is the same when its size and its time of change are; one that was written
when it is the same file and still reaches the position. Nothing is ever cut off or written.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction

# `Any` below: the many classes of `io` share no base that says what they can do.


class FileChanged(Exception):
    """The file is not what it was when the checkpoint was made."""


def reopen(
    path: str, mode: str, position: int, known: tuple[int, ...], form: str, text: Any
) -> Any:
    """The file again, at its position. Raises FileChanged or OSError."""
    readable, writable = "r" in mode or "+" in mode, mode != "rb"
    found = os.stat(path)
    device, inode, size, changed = known
    if writable:
        same = (found.st_dev, found.st_ino) == (device, inode) and found.st_size >= position
    else:
        same = (found.st_size, found.st_mtime_ns) == (size, changed)
    if not same:
        raise FileChanged(f"{path} has changed since")
    # "w" would empty it, and "x" would refuse it.
    flags = os.O_RDWR if readable and writable else os.O_WRONLY if writable else os.O_RDONLY
    raw = io.FileIO(os.open(path, flags | (os.O_APPEND if "a" in mode else 0) | os.O_CLOEXEC),
                    _raw_mode(mode))  # fmt: skip
    raw.name = path
    made = _wrapped(raw, form, text)
    made.seek(position)
    return made


def closed(path: str, mode: str, form: str, text: Any) -> Any:
    """A file that has been closed."""
    raw = io.FileIO(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), _raw_mode(mode))
    raw.name = path
    made = _wrapped(raw, form, text)
    made.close()
    return made


def stream(name: str) -> Any:
    """One of the session's own streams."""
    return getattr(sys, name)


def _raw_mode(mode: str) -> str:
    """Without what makes or empties a file."""
    return "rb+" if "+" in mode else "ab" if "a" in mode else "rb" if "r" in mode else "wb"


def _wrapped(raw: io.FileIO, form: str, text: Any) -> Any:
    if form == "FileIO":
        return raw
    kind: Any = {
        "BufferedReader": io.BufferedReader,
        "BufferedWriter": io.BufferedWriter,
        "BufferedRandom": io.BufferedRandom,
    }[form.removeprefix("Text:")]
    buffered = kind(raw)
    if not form.startswith("Text:"):
        return buffered
    encoding, errors, line_buffering, mode = text
    made = io.TextIOWrapper(buffered, encoding, errors, None, line_buffering)
    made.mode = mode  # type: ignore[misc]  # as `open` does it
    return made


def _file(recorder: Recorder, obj: Any) -> Reduction:
    for name in ("stdout", "stderr", "stdin", "__stdout__", "__stderr__", "__stdin__"):
        if obj is getattr(sys, name):
            return stream, (name,)
    form, text, raw = _taken_apart(obj)
    if raw is None:
        return recorder.hole(obj, "what lies under it is not a file of the system")
    path = raw.name
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if obj.closed:
        return closed, (str(path), raw.mode, form, text)
    found = os.fstat(raw.fileno())
    reason = _unusual(found, path)
    if reason:
        return recorder.hole(obj, reason)
    path = str(Path(path).absolute())
    try:
        there = os.stat(path)
    except OSError:
        return recorder.hole(obj, f"{path} is not there any more")
    if (there.st_dev, there.st_ino) != (found.st_dev, found.st_ino):
        return recorder.hole(obj, f"{path} is another file by now")
    if raw.mode != "rb" and recorder.apart:
        _catch(raw, found)
    if raw.mode != "rb":
        obj.flush()
        found = os.fstat(raw.fileno()) if not recorder.apart else found
    if text is not None:
        recorder.note("opened again, with newline=None")  # which it was opened with is not told
    known = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    position = obj.tell()
    return reopen, (path, raw.mode, position, known, form, text)


def _catch(raw: io.FileIO, found: os.stat_result) -> None:
    """What is still to be written goes nowhere: the session itself will write it."""
    start = found.st_size if "a" in raw.mode else raw.tell()
    memory = os.memfd_create("holdfast-file")
    os.lseek(memory, start, os.SEEK_SET)
    os.dup2(memory, raw.fileno())
    os.close(memory)


def _taken_apart(obj: Any) -> tuple[str, Any, io.FileIO | None]:
    """How the file is wrapped, and the raw file."""
    form, text, buffered = type(obj).__name__, None, obj
    try:
        if type(obj) is io.TextIOWrapper:
            buffered = obj.buffer
            form = f"Text:{type(buffered).__name__}"
            mode = getattr(obj, "mode", "r")
            text = (obj.encoding, obj.errors, obj.line_buffering, mode)
        raw = buffered if type(buffered) is io.FileIO else buffered.raw
    except ValueError:  # it was detached
        return form, text, None
    return form, text, raw if type(raw) is io.FileIO else None


def _unusual(found: os.stat_result, path: object) -> str:
    """Why this is not an ordinary file, if it is not."""
    kinds = (
        (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )  # fmt: skip
    for test, name in kinds:
        if test(found.st_mode):
            return f"{name} is not brought back"
    if not isinstance(path, str):
        return "it was opened by a number, so its name is not known"
    return "" if found.st_nlink else "its file was deleted"


EXACT: dict[type, Reduce] = {
    io.TextIOWrapper: _file,
    io.BufferedReader: _file,
    io.BufferedWriter: _file,
    io.BufferedRandom: _file,
    io.FileIO: _file,
}
