"""Mappings: a part as memory, without reading it first where it is stored raw."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from holdfast.model.errors import HoldfastError
from holdfast.store import workers
from holdfast.store.backend import Hold
from holdfast.store.blocks import BLOCK, LEAF_BLOCKS, PAGE
from holdfast.store.chunks import RAW
from holdfast.store.library import Library
from holdfast.store.pageio import PageReader
from holdfast.store.parts import PartRecord
from holdfast.store.streams import PartStream

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
    """Where each stretch of a part comes from, in order; stretches in one file are joined."""
    pending: FileRun | None = None
    for run in _extent_runs(library, reader):
        if (
            isinstance(run, FileRun)
            and pending is not None
            and pending.path == run.path
            and pending.start + pending.size == run.start
            and pending.offset + pending.size == run.offset
        ):
            pending = FileRun(pending.start, pending.size + run.size, pending.path, pending.offset)
            continue
        if pending is not None:
            yield pending
            pending = None
        if isinstance(run, FileRun):
            pending = run
        else:
            yield run
    if pending is not None:
        yield pending


def _extent_runs(library: Library, reader: PageReader) -> Iterator[FileRun | CopyRun]:
    paths: dict[bytes, Path | None] = {}
    for leaf, table in enumerate(reader.tables()):
        for block in range(len(table)):
            for extent in table.extents(block):
                start = (leaf * LEAF_BLOCKS + block) * BLOCK + extent.page * PAGE
                size = extent.pages * PAGE
                place = next((p for p in library.index.find(extent.chunk) if p.codec == RAW), None)
                if place is None or (place.offset + extent.at * PAGE) % PAGE:
                    yield CopyRun(start, size, extent.chunk, extent.at)
                    continue
                if place.volume not in paths:
                    paths[place.volume] = library.backend.path(place.volume)
                path = paths[place.volume]
                # A page that the chunk does not fill would show what follows it in the file.
                full = min(size, (place.plain - extent.at * PAGE) // PAGE * PAGE)
                if path is None:
                    full = 0
                else:
                    if full:
                        yield FileRun(start, full, path, place.offset + extent.at * PAGE)
                if full < size:
                    yield CopyRun(start + full, size - full, extent.chunk, extent.at + full // PAGE)


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

    def finished(_: Future[None]) -> None:
        nonlocal left
        left -= 1
        if not left:
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
