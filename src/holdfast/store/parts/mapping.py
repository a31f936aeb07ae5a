"""Mappings: a part as memory, without reading it first where it is stored raw."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from holdfast.model.errors import Corrupt, HoldfastError, from_os_error
from holdfast.store.arrays import distinct, np
from holdfast.store.backends.contract import Hold
from holdfast.store.backends.files import open_file
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import RAW, Location, chunk_id
from holdfast.store.chunks.index import Places
from holdfast.store.chunks.library import Library
from holdfast.store.parts.blocks import BLOCK, LEAF_BLOCKS, PAGE
from holdfast.store.parts.decrypted import decrypted
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.parts.part import PartRecord
from holdfast.store.parts.streams import PartStream

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True)
class BlockRun:
    """A block that has to be put together, because deltas lie on it."""

    start: int
    block: int


@dataclass(frozen=True, slots=True)
class Shown:
    """Chunks of which a mapping shows the bytes in a file: `numbers` of the ids and places."""

    ids: list[bytes]
    numbers: NDArray[np.intp]
    places: Places

    def check(self, library: Library) -> None:
        """Raise Corrupt unless each is what it should be. It must be the very copy that was
        mapped: of a chunk that is stored twice, the other may be good and this one damaged."""
        pack, offset, plain = (
            column[self.numbers].tolist()
            for column in (self.places.pack, self.places.offset, self.places.plain)
        )
        for number, at, where, size in zip(self.numbers.tolist(), pack, offset, plain, strict=True):
            volume = library.index.name(at)
            if chunk_id(library.read(Location(volume, where, size, size, RAW))) != self.ids[number]:
                library.backend.distrust(volume, where)
                raise Corrupt(
                    f"chunk {self.ids[number].hex()[:16]} is damaged",
                    where=f"volume {volume.hex()}, bytes {where} to {where + size}",
                )


class Mapping:
    """A part in memory. `view` has its bytes; `mapped_bytes` of them were not read yet. `file` is a
    descriptor of the memory that has them decrypted, where the store is encrypted: it can be handed
    to another process, and is closed with the mapping."""

    def __init__(
        self,
        region: mmap.mmap | bytearray,
        part: PartRecord,
        *,
        writable: bool,
        file: int | None = None,
    ) -> None:
        self._region = region
        self.file = file
        self._farewell = None if file is None else weakref.finalize(self, os.close, file)
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
        if self._farewell is not None:
            self._farewell()
            self.file = None
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
    if library.cipher.seals:
        try:
            memory, fd = decrypted(library, part)
        finally:
            hold.release()
        return Mapping(memory, part, writable=writable, file=fd)
    reader = PageReader(library, part)
    shown: list[Shown] = []
    try:
        region = _room(-(-reader.total // PAGE) * PAGE)
        mapping = Mapping(region, part, writable=writable)
        runs: list[Run] = [*layered_runs(reader), *file_runs(library, reader, shown)]
        for run in runs:
            if isinstance(run, FileRun):
                _map_file(region, run)
                mapping.mapped_bytes += run.size
        for start, piece in decoded(library, reader, runs):
            region[start : start + len(piece)] = piece
    except BaseException:
        hold.release()
        raise
    mapping.verification = verify(library, shown, hold)
    return mapping


Run: TypeAlias = FileRun | CopyRun | BlockRun


def decoded(
    library: Library, reader: PageReader, runs: Iterable[Run]
) -> Iterator[tuple[int, memoryview]]:
    """The bytes of those runs that are not in a file as they are, verified, and where each begins
    on the page grid. Raises Corrupt."""

    def decode(run: CopyRun | BlockRun) -> tuple[int, memoryview]:
        if isinstance(run, BlockRun):
            return run.start, memoryview(reader.read(run.block))
        plain = memoryview(library.get_shared(run.chunk))
        return run.start, plain[run.at * PAGE : run.at * PAGE + run.size]

    todo = (run for run in runs if not isinstance(run, FileRun))
    return workers.in_order(decode, todo, 4 * workers.count())


def layered_runs(reader: PageReader) -> Iterator[BlockRun]:
    """The blocks of a part on which deltas lie."""
    for leaf, table in enumerate(reader.tables()):
        first = leaf * LEAF_BLOCKS
        yield from (BlockRun((first + block) * BLOCK, first + block) for block in table.layers)


def file_runs(
    library: Library, reader: PageReader, shown: list[Shown], layered: bool = False
) -> Iterator[FileRun | CopyRun]:
    """Where each stretch of a part comes from that no deltas lie on, or with `layered` what they
    lie on; stretches that adjoin in one file are joined. `shown` learns which copies of which
    chunks are mapped."""
    for leaf, table in enumerate(reader.tables()):
        runs = table.runs(layered)
        places = library.index.places(table.ids)
        if reader.part.split == "segment":
            library.index.prefer_mappable(table.ids, places)
        pack, codec = places.pack[runs.chunk], places.codec[runs.chunk]
        offset = places.offset[runs.chunk] + runs.at * PAGE
        start = leaf * LEAF_BLOCKS * BLOCK + runs.page * PAGE
        size = runs.pages * PAGE
        # A page that the chunk does not fill would show what follows it in the file.
        whole = runs.at * PAGE + size <= places.plain[runs.chunk]
        raw = (pack >= 0) & (codec == RAW) & (offset % PAGE == 0) & whole
        numbers = distinct(pack[raw]).tolist()
        # Where each has to be fetched first, they are fetched at the same time.
        names = [library.index.name(number) for number in numbers]
        ask = workers.fetching().map if len(names) > 1 else map
        found = zip(numbers, ask(library.backend.path, names), strict=True)
        paths = {number: path for number, path in found if path is not None}
        mappable = raw & np.isin(pack, list(paths))
        for i in np.flatnonzero(~mappable).tolist():
            chunk = table.ids[int(runs.chunk[i])]
            yield CopyRun(int(start[i]), int(size[i]), chunk, int(runs.at[i]))
        shown.append(Shown(table.ids, distinct(runs.chunk[mappable]), places))
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


def _room(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    except (OSError, OverflowError) as error:
        raise HoldfastError(
            f"no room in memory for {size} bytes: {error}", hint="read the part piece by piece"
        ) from error


def _map_file(region: mmap.mmap, run: FileRun) -> None:
    anchor = ctypes.c_char.from_buffer(region)
    address = ctypes.addressof(anchor)
    del anchor
    try:
        fd = open_file(run.path)
    except FileNotFoundError:
        # Without a hold (where none may be taken) a collector need not wait for us.
        raise Corrupt(
            f"{run.path.name} was deleted while it was being mapped",
            hint="try again: what it held may have been moved",
        ) from None
    except OSError as error:
        raise from_os_error(error, "mapping a part") from error
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


def verify(library: Library, shown: list[Shown], hold: Hold) -> list[Future[None]]:
    """Check what was mapped, in the files and not in memory that may be written to meanwhile."""
    if not shown:
        hold.release()
        return []
    left = len(shown)
    lock = threading.Lock()

    def look(one: Shown) -> None:
        # Whoever waited for the last look may count on the hold being over.
        nonlocal left
        try:
            one.check(library)
        finally:
            with lock:
                left -= 1
                last = not left
            if last:
                hold.release()

    return [workers.background().submit(look, one) for one in shown]
