"""Sources: where the bytes of a part come from, cut into windows that threads can fetch."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, cast

from holdfast.model.errors import BadInput, from_os_error
from holdfast.store.arrays import np


class Span(NamedTuple):
    """So many bytes that can be read anywhere, by several threads at once."""

    size: int
    fetch: Callable[[int, int], bytes | bytearray | memoryview]  # an offset and a length


class Growing(NamedTuple):
    """A file that somebody is still writing, from its beginning to its end."""

    path: Path
    is_complete: Callable[[], bool]  # raises when it will never be
    rest: Callable[[], object]  # until there may be more


Source = bytes | bytearray | memoryview | Path | BinaryIO | Iterable[bytes] | Span | Growing

WINDOW = 512 * 1024  # with what it is compared to, it stays in a processor's own cache
_PAGE = 4096
_DOING = "reading what is to be saved"

_VALUES = (str, dict, int, float, bool, type(None))  # what people give for bytes by mistake

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
    elif isinstance(source, Span):
        yield from _span_windows(source, skew, size)
    elif isinstance(source, Growing):
        yield from _growing_windows(source, skew, size)
    elif (view := _memory(source)) is not None:
        yield from _memory_windows(view, skew, size)
    elif hasattr(source, "read"):
        yield from _stream_windows(iter(lambda: source.read(size), b""), skew, size)
    elif type(source) in _VALUES:
        raise _no_bytes(source)
    elif isinstance(source, Iterable):
        yield from _stream_windows(iter(cast(Iterable[bytes], source)), skew, size)
    else:
        raise _no_bytes(source)


def _memory(source: object) -> memoryview | None:
    """The bytes of a buffer as they lie in memory; None when it is none."""
    # Who has an array has loaded numpy, too.
    if "numpy" in sys.modules and isinstance(source, np.ndarray):
        if source.dtype.hasobject:
            raise BadInput("an array of Python objects has no bytes of its own")
        flags = source.flags
        if not (flags.c_contiguous or flags.f_contiguous):
            raise BadInput(
                "the array has gaps in memory", hint="save numpy.ascontiguousarray(array)"
            )
        array = np.asarray(source)
        return (array if flags.c_contiguous else array.T).reshape(-1).view(np.uint8).data
    try:
        view = memoryview(source)  # type: ignore[arg-type]
    except TypeError:
        return None
    if not view.contiguous:
        raise BadInput("the buffer has gaps in memory", hint="save bytes(buffer)")
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes("A"))


def _no_bytes(given: object) -> BadInput:
    return BadInput(
        f"{type(given).__name__} is not bytes",
        hint='a value is saved with split="structure"'
        if type(given) in _VALUES
        else "give a buffer, a Path, a file opened in binary mode, or buffers one after the other",
    )


def _memory_windows(view: memoryview, skew: int, size: int) -> Iterator[Fetch]:
    for start in range(0, skew + len(view), size):
        if start < skew:
            yield _Given(memoryview(bytes(skew) + bytes(view[: size - skew])))
        else:
            yield _Given(view[start - skew : start - skew + size])


def _span_windows(span: Span, skew: int, size: int) -> Iterator[Fetch]:
    def window(start: int, length: int) -> Fetch:
        def fetch(transient: bool = False) -> memoryview:
            lead = max(0, skew - start)
            found = span.fetch(start + lead - skew, length - lead)
            return memoryview(bytes(lead) + bytes(found)) if lead else memoryview(found)

        return fetch

    total = span.size + skew
    for start in range(0, total, size):
        yield window(start, min(size, total - start))


def _path_windows(path: Path, skew: int, size: int) -> Iterator[Fetch]:
    file = _File(path)
    if not file.size:
        # Files that the system makes up, as in /proc, have content and no size.
        yield from _stream_windows(file.pieces(size), skew, size)
        return
    total = file.size + skew
    for start in range(0, total, size):
        yield file.window(start, min(size, total - start), skew)


def _growing_windows(source: Growing, skew: int, size: int) -> Iterator[Fetch]:
    file, start = _File(source.path), 0
    while True:
        complete = source.is_complete()  # before the size: what comes in between is seen next time
        total = file.size + skew
        while start + size <= total or (complete and start < total):
            yield file.window(start, min(size, total - start), skew)
            start += size
        if complete:
            return
        source.rest()


class _File:
    """Keeps a descriptor open as long as a window of it may be fetched."""

    def __init__(self, path: Path) -> None:
        """Raises BadInput, or what the system's error means."""
        self._path = path
        try:
            # Not blocking, because opening a pipe would wait for somebody to write into it.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._fd = -1
            raise from_os_error(error, _DOING) from error
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise BadInput(f"{path} is not a regular file", hint="open it, and give the open file")

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def window(self, start: int, length: int, skew: int) -> Fetch:
        def fetch(transient: bool = False) -> memoryview:
            data = _room(length, transient)
            lead = max(0, skew - start)
            data[:lead] = bytes(lead)
            view = data[lead:]
            while len(view):
                got = self._read(view, start + length - skew - len(view))
                if not got:
                    raise BadInput(f"{self._path} became shorter while it was being saved")
                view = view[got:]
            return data

        return fetch

    def pieces(self, size: int) -> Iterator[bytes]:
        """Everything to the end, however long it is."""
        at = 0
        data = bytearray(size)
        while got := self._read(memoryview(data), at):
            at += got
            yield bytes(data[:got])

    def _read(self, view: memoryview, at: int) -> int:
        try:
            return os.preadv(self._fd, [view], at)
        except OSError as error:
            raise from_os_error(error, _DOING) from error

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class _Given:
    """A window that is in memory already."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def __call__(self, transient: bool = False) -> memoryview:
        return self._data


def _room(size: int, transient: bool) -> memoryview:
    if not transient:
        # From the beginning of a page on, so that a disk can take it from there. Not as a mapping:
        # what the interpreter got from the system once, and has back, it need not ask for again.
        data = bytearray(size + _PAGE)
        start = -ctypes.addressof(ctypes.c_char.from_buffer(data)) % _PAGE
        return memoryview(data)[start : start + size]
    if len(getattr(_scratch, "data", b"")) < size:
        _scratch.data = bytearray(size)
    return memoryview(_scratch.data)[:size]


def _stream_windows(pieces: Iterator[bytes], skew: int, size: int) -> Iterator[Fetch]:
    pending = bytearray(skew)
    for given in pieces:
        if (piece := _memory(given)) is None:
            raise _no_bytes(given)
        pending += piece
        while len(pending) >= size:
            window = bytes(memoryview(pending)[:size])
            del pending[:size]
            yield _Given(memoryview(window))
    if pending:
        yield _Given(memoryview(bytes(pending)))
