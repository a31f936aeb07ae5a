"""Mappings: a part as memory, without reading it first where it is stored raw."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from holdfast.model.errors import HoldfastError
from holdfast.store import workers
from holdfast.store.backend import Hold
from holdfast.store.blocks import BLOCK, LEAF_BLOCKS, PAGE
from holdfast.store.chunks import RAW
from holdfast.store.library import Library
from holdfast.store.pageio import PageReader
from holdfast.store.parts import PartRecord
from holdfast.store.streams import PartStream

Column = NDArray[np.int64]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_MAP_FIXED = 0x10
_BATCH = 64  # blocks verified by one task


@dataclass(frozen=True, slots=True)
class FileRun:
    """A stretch of a part that lies in a file as it is: at `offset`, `start` on the page grid."""

    start: int
    size: int
    path: Path
    offset: int


@dataclass(frozen=True, slots=True)
class CopyRun:
    """A stretch that has to be decoded: page `at` onwards of a chunk."""

    start: int
    size: int
    chunk: bytes
    at: int


class Mapping:
    """A part in memory. `view` has its bytes; `mapped_bytes` of them were not read yet."""

    def __init__(self, region: mmap.mmap | bytearray, part: PartRecord, *, writable: bool) -> None:
        self._region = region
        self.mapped_bytes = 0
        whole = memoryview(region)[part.skew : part.skew + part.size]
        self.view = whole if writable else whole.toreadonly()
        self.verification: list[Future[None]] = []

    @property
    def verified(self) -> bool | None:
        """None while bytes are still being looked at."""
        if not all(future.done() for future in self.verification):
            return None
        return all(future.exception() is None for future in self.verification)

    def check(self) -> None:
        """Wait until every byte was verified; raises Corrupt."""
        for future in self.verification:
            future.result()

    def close(self) -> None:
        """Give the memory back; whoever still has a view of it keeps it alive."""
        self.view.release()
        if isinstance(self._region, mmap.mmap):
            try:
                self._region.close()
            except BufferError:
                return  # an array made from the view lives on, and the memory with it

    def __enter__(self) -> Mapping:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def map_part(library: Library, part: PartRecord, hold: Hold, *, writable: bool) -> Mapping:
    """Map or read a part. The hold is released when the last byte was verified."""
    if part.split not in ("pages", "segment") or not part.size:
        try:
            data = bytearray(PartStream(library, part).readall())
        finally:
            hold.release()
        return Mapping(bytearray(part.skew) + data, part, writable=writable)
    reader = PageReader(library, part)
    region = mmap.mmap(-1, -(-reader.total // PAGE) * PAGE, flags=mmap.MAP_PRIVATE)
    try:
        mapping = Mapping(region, part, writable=writable)
        for run in file_runs(library, reader):
            if isinstance(run, FileRun):
                _map_file(region, run)
                mapping.mapped_bytes += run.size
            else:
                plain = memoryview(library.get_shared(run.chunk))
                piece = plain[run.at * PAGE : run.at * PAGE + run.size]
                region[run.start : run.start + len(piece)] = piece
    except BaseException:
        hold.release()
        raise
    mapping.verification = _verify(reader, hold)
    return mapping


def file_runs(library: Library, reader: PageReader) -> Iterator[FileRun | CopyRun]:
    """Where each stretch of a part comes from; stretches that adjoin in one file are joined."""
    for leaf, table in enumerate(reader.tables()):
        runs = table.runs()
        places = library.index.places(table.ids)
        pack, codec = places.pack[runs.chunk], places.codec[runs.chunk]
        offset = places.offset[runs.chunk] + runs.at * PAGE
        start = leaf * LEAF_BLOCKS * BLOCK + runs.page * PAGE
        size = runs.pages * PAGE
        # A page that the chunk does not fill would show what follows it in the file.
        whole = runs.at * PAGE + size <= places.plain[runs.chunk]
        raw = (pack >= 0) & (codec == RAW) & (offset % PAGE == 0) & whole
        numbers = np.unique(pack[raw]).tolist()
        found = {n: library.backend.path(library.index.name(n)) for n in numbers}
        paths = {n: path for n, path in found.items() if path is not None}
        mappable = raw & np.isin(pack, list(paths))
        for i in np.flatnonzero(~mappable).tolist():
            chunk = table.ids[int(runs.chunk[i])]
            yield CopyRun(int(start[i]), int(size[i]), chunk, int(runs.at[i]))
        columns = (pack[mappable], start[mappable], offset[mappable], size[mappable])
        yield from _joined(paths, *columns)


def _joined(
    paths: dict[int, Path], pack: Column, start: Column, offset: Column, size: Column
) -> Iterator[FileRun]:
    if not len(pack):
        return
    follows = (
        (pack[1:] == pack[:-1])
        & (start[1:] == start[:-1] + size[:-1])
        & (offset[1:] == offset[:-1] + size[:-1])
    )
    first = np.flatnonzero(np.append(True, ~follows))
    last = np.append(first[1:], len(pack)) - 1
    length = start[last] + size[last] - start[first]
    columns = (pack[first], start[first], offset[first], length)
    for number, at, where, total in zip(*(c.tolist() for c in columns), strict=True):
        yield FileRun(at, total, paths[number], where)


def _map_file(region: mmap.mmap, run: FileRun) -> None:
    anchor = ctypes.c_char.from_buffer(region)
    address = ctypes.addressof(anchor)
    del anchor
    fd = os.open(run.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = _libc.mmap(
            address + run.start,
            run.size,
            mmap.PROT_READ | mmap.PROT_WRITE,
            mmap.MAP_PRIVATE | _MAP_FIXED,
            fd,
            run.offset,
        )
    finally:
        os.close(fd)
    if found != address + run.start:
        reason = os.strerror(ctypes.get_errno())
        raise HoldfastError(f"mapping {run.size} bytes of {run.path.name}: {reason}")


def _verify(reader: PageReader, hold: Hold) -> list[Future[None]]:
    """Check every block against the store's files, not against memory that may be written to."""
    batches = range(0, reader.block_count, _BATCH)
    left = len(batches)
    lock = threading.Lock()  # a future that is done already calls back in this thread

    def finished(_: Future[None]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = not left
        if last:
            hold.release()

    futures = []
    for first in batches:
        last = min(first + _BATCH, reader.block_count)
        futures.append(workers.background().submit(_verify_blocks, reader, first, last))
    for future in futures:
        future.add_done_callback(finished)
    return futures


def _verify_blocks(reader: PageReader, first: int, last: int) -> None:
    for block in range(first, last):
        reader.read(block)
