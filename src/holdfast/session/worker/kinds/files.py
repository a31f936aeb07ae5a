"""Open files: opened again at their position, as long as the file is still the same.

A file that was read is the same when its size and its time of change are; one that was written
when it is the same file and still reaches the position. Nothing is ever cut off or written. A
file that was deleted, as a temporary one is, comes back with its content.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

from holdfast.session.worker.kinds import pipes, reading
from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction
from holdfast.session.worker.kinds.wrapping import raw_mode, taken_apart, wrapped

LARGEST = 64 << 20  # of a deleted file, which is kept with its content

# `Any` below: the many classes of `io` share no base that says what they can do.


class FileChanged(OSError):
    """The file is not what it was when the checkpoint was made."""


def reopen(
    path: str, mode: str, position: int, known: tuple[int, ...], form: str, text: Any
) -> Any:
    """The file again, at its position. Raises FileChanged or OSError."""
    readable, writable = "r" in mode or "+" in mode, mode != "rb"
    _check_same(path, known, position, writable)
    # "w" would empty it, and "x" would refuse it.
    flags = os.O_RDWR if readable and writable else os.O_WRONLY if writable else os.O_RDONLY
    raw = io.FileIO(os.open(path, flags | (os.O_APPEND if "a" in mode else 0) | os.O_CLOEXEC),
                    raw_mode(mode))  # fmt: skip
    raw.name = path
    made = wrapped(raw, form, text)
    made.seek(position)
    return made


def remap(
    path: str, mode: Any, known: tuple[int, ...], dtype: Any, offset: int, shape: Any, order: Any
) -> Any:
    """A file in memory, as numpy's `memmap`. Raises FileChanged or OSError."""
    import numpy

    length = int(dtype.itemsize * numpy.prod(shape, dtype=object))
    _check_same(path, known, offset + length, mode != "r")
    return numpy.memmap(path, dtype, mode, offset, shape, order)


def _check_same(path: str, known: tuple[int, ...], reaches: int, writable: bool) -> None:
    found = os.stat(path)
    device, inode, size, changed = known
    if writable:
        same = (found.st_dev, found.st_ino) == (device, inode) and found.st_size >= reaches
    else:
        same = (found.st_size, found.st_mtime_ns) == (size, changed)
    if not same:
        raise FileChanged(f"{path} has changed since")


def nameless(name: Any, mode: str, position: int, content: bytes, form: str, text: Any) -> Any:
    """A file that nobody else can open, with this content."""
    fd = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    raw = io.FileIO(fd, raw_mode(mode))
    with memoryview(content) as left:
        written = 0
        while written < len(left):
            written += os.pwrite(fd, left[written:], written)
    raw.name = fd if name is None else name
    made = wrapped(raw, form, text)
    made.seek(position)
    return made


def closed(path: str, mode: str, form: str, text: Any) -> Any:
    """A file that has been closed."""
    raw = io.FileIO(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), raw_mode(mode))
    raw.name = path
    made = wrapped(raw, form, text)
    made.close()
    return made


def stream(name: str) -> Any:
    """One of the session's own streams."""
    return getattr(sys, name)


def over_bytes(
    buffer: io.BytesIO, encoding: str, errors: str | None, line_buffering: bool, position: int
) -> io.TextIOWrapper:
    """Text over bytes in memory."""
    made = io.TextIOWrapper(buffer, encoding, errors, None, line_buffering)
    made.seek(position)
    return made


def _file(recorder: Recorder, obj: Any) -> Reduction:
    for name in ("stdout", "stderr", "stdin", "__stdout__", "__stderr__", "__stdin__"):
        if obj is getattr(sys, name):
            return stream, (name,)
    form, text, raw = taken_apart(obj)
    inner = getattr(obj, "buffer", None) if type(obj) is io.TextIOWrapper else None
    if raw is None and type(inner).__name__ in ("GzipFile", "BZ2File", "LZMAFile"):
        from holdfast.session.worker.kinds import tables

        settings = (obj.encoding, obj.errors, obj.line_buffering)
        return tables.reduce_unpacked(recorder, obj, settings)
    if raw is None and type(inner) is io.BytesIO:
        return over_bytes, (inner, obj.encoding, obj.errors, obj.line_buffering, obj.tell())
    if raw is None:
        return recorder.hole(obj, "what lies under it is not a file of the system")
    path = raw.name
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if obj.closed:
        return closed, (str(path), raw.mode, form, text)
    before = _caught.get(raw.fileno()) if recorder.apart else None
    found = before[1] if before else os.fstat(raw.fileno())
    deleted = stat.S_ISREG(found.st_mode) and not found.st_nlink
    if raw.fileno() in recorder.pairs or pipes.is_pipe(raw.fileno(), found):
        return pipes.reduce_end(recorder, obj, raw, form, text)
    reason = "" if deleted else _unusual(found, path) or _elsewhere(found, path)
    if reason:
        return recorder.hole(obj, reason)
    content, found = before or _settled(recorder, obj, raw, found, deleted)
    position = reading.position(obj)
    if position is None:
        return recorder.hole(obj, "where it stands in the middle of an iteration cannot be told")
    if text is not None:
        recorder.note("opened again, with newline=None")  # which it was opened with is not told
    if not deleted:
        known = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        whole = str(Path(path).absolute())
        return reopen, (whole, raw.mode, position, known, form, text)
    if content is None:
        return recorder.hole(obj, f"its file was deleted, and has more than {LARGEST} bytes")
    recorder.note("its file was deleted; it comes back with its content, under no name")
    called = path if isinstance(path, str) else None
    return nameless, (called, raw.mode, position, content, form, text)


# In a copy of the process, where a file is caught once though it may be pickled again with those
# that share it: what it held, and how it was. The copy ends after its capture.
_caught: dict[int, tuple[bytes | None, os.stat_result]] = {}


def _settled(
    recorder: Recorder, obj: Any, raw: io.FileIO, found: os.stat_result, deleted: bool
) -> tuple[bytes | None, os.stat_result]:
    """What a deleted file holds, with all that waits to be written, and the file as it is then."""
    waiting = raw.mode != "rb"
    if waiting and not recorder.apart:
        obj.flush()
        found = os.fstat(raw.fileno())
    content = _content(recorder, raw.fileno(), found) if deleted else None
    if waiting and recorder.apart:
        start = _catch(raw, found)
        obj.flush()
        if content is not None:
            late = os.fstat(raw.fileno()).st_size - start
            if late > 0:  # below zero when nothing waited: what was caught reaches nowhere
                text = os.pread(raw.fileno(), late, start)
                content = content[:start].ljust(start, b"\0") + text + content[start + late :]
        _caught[raw.fileno()] = content, found
    return content, found


def _content(recorder: Recorder, fd: int, found: os.stat_result) -> bytes | None:
    """All of a file, from the beginning; None when that is too much."""
    if found.st_size > LARGEST:
        return None
    recorder.check_size(found.st_size)
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)  # it may be write-only
    try:
        return os.pread(again, found.st_size, 0)
    finally:
        os.close(again)


def _catch(raw: io.FileIO, found: os.stat_result) -> int:
    """What is still to be written goes elsewhere, from here on: the session itself writes it."""
    start = found.st_size if "a" in raw.mode else raw.tell()
    memory = os.memfd_create("holdfast-file")
    os.lseek(memory, start, os.SEEK_SET)
    os.dup2(memory, raw.fileno())
    os.close(memory)
    return start


def _unusual(found: os.stat_result, path: object) -> str:
    """Why this is not an ordinary file, if it is not."""
    kinds = (
        (stat.S_ISFIFO, "a pipe with a name"), (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
    )  # fmt: skip
    for test, name in kinds:
        if test(found.st_mode):
            return f"{name} is not brought back"
    return "" if isinstance(path, str) else "it was opened by a number, so its name is not known"


def _elsewhere(found: os.stat_result, path: Any) -> str:
    """Why a file cannot be opened again under its name, if it cannot."""
    path = str(Path(path).absolute())
    try:
        there = os.stat(path)
    except OSError:
        return f"{path} is not there any more"
    same = (there.st_dev, there.st_ino) == (found.st_dev, found.st_ino)
    return "" if same else f"{path} is another file by now"


EXACT: dict[type, Reduce] = {
    io.TextIOWrapper: _file,
    io.BufferedReader: _file,
    io.BufferedWriter: _file,
    io.BufferedRandom: _file,
    io.FileIO: _file,
}
