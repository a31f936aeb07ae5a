"""Sources: where the bytes of a part come from, cut into windows that threads can fetch."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from holdfast.model.errors import BadInput, from_os_error

Source = bytes | bytearray | memoryview | Path | BinaryIO | Iterable[bytes]

WINDOW = 1024 * 1024

# Fresh memory costs a page fault for every 4 KiB; a thread that is done with a window reads the
# next one into the same place.
_scratch = threading.local()


class Fetch(Protocol):
    """Gets one window. `transient`: it is done with before the same thread fetches again."""

    def __call__(self, transient: bool = False) -> memoryview: ...


def windows(source: Source, skew: int = 0, size: int = WINDOW) -> Iterator[Fetch]:
    """Functions that fetch one window each, in order. The first `skew` bytes are zeros.

    Memory is not copied, and files are read by whoever calls the function, so both can be
    worked on by several threads; a stream is read here, one window at a time.
    """
    if isinstance(source, Path):
        yield from _path_windows(source, skew, size)
    elif isinstance(source, bytes | bytearray | memoryview):
        yield from _memory_windows(memoryview(source).cast("B"), skew, size)
    elif hasattr(source, "__buffer__") or _is_buffer(source):
        yield from _memory_windows(memoryview(source).cast("B"), skew, size)  # type: ignore[arg-type]
    elif hasattr(source, "read"):
        yield from _stream_windows(iter(lambda: source.read(size), b""), skew, size)
    else:
        yield from _stream_windows(iter(source), skew, size)


def _is_buffer(source: object) -> bool:
    try:
        memoryview(source).release()  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _memory_windows(view: memoryview, skew: int, size: int) -> Iterator[Fetch]:
    for start in range(0, skew + len(view), size):
        if start < skew:
            yield _Given(memoryview(bytes(skew) + bytes(view[: size - skew])))
        else:
            yield _Given(view[start - skew : start - skew + size])


def _path_windows(path: Path, skew: int, size: int) -> Iterator[Fetch]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise from_os_error(error, "reading what is to be saved") from error
    file = _File(fd, path)
    total = os.fstat(fd).st_size + skew
    for start in range(0, total, size):
        yield file.window(start, min(size, total - start), skew)


class _File:
    """Keeps a descriptor open as long as a window of it may be fetched."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path

    def window(self, start: int, length: int, skew: int) -> Fetch:
        def fetch(transient: bool = False) -> memoryview:
            data = _room(length, transient)
            lead = max(0, skew - start)
            data[:lead] = bytes(lead)
            view = data[lead:]
            got = os.preadv(self._fd, [view], start + lead - skew) if len(view) else 0
            while 0 < got < len(view):
                view = view[got:]
                got = os.preadv(self._fd, [view], start + length - skew - len(view))
            if len(view) and not got:
                raise BadInput(f"{self._path} became shorter while it was being saved")
            return data

        return fetch

    def __del__(self) -> None:
        os.close(self._fd)


class _Given:
    """A window that is in memory already."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def __call__(self, transient: bool = False) -> memoryview:
        return self._data


def _room(size: int, transient: bool) -> memoryview:
    if not transient:
        return memoryview(bytearray(size))
    if len(getattr(_scratch, "data", b"")) < size:
        _scratch.data = bytearray(size)
    return memoryview(_scratch.data)[:size]


def _stream_windows(pieces: Iterator[bytes], skew: int, size: int) -> Iterator[Fetch]:
    pending = bytearray(skew)
    for piece in pieces:
        pending += piece
        while len(pending) >= size:
            window = bytes(memoryview(pending)[:size])
            del pending[:size]
            yield _Given(memoryview(window))
    if pending:
        yield _Given(memoryview(bytes(pending)))
