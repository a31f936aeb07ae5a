"""Mappings: a part as memory, without reading it first where it is stored raw."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from holdfast.model.errors import Corrupt, HoldfastError, from_os_error
from holdfast.store.backends.contract import Hold
from holdfast.store.backends.files import open_file
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import Location, chunk_id
from holdfast.store.chunks.index import mappable
from holdfast.store.chunks.library import Library
from holdfast.store.parts.blocks import BLOCK, LEAF_BLOCKS, PAGE, PAGES
from holdfast.store.parts.decrypted import decrypted
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.parts.part import PartRecord
from holdfast.store.parts.streams import PartStream

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
_FEW = 8  # chunks on this machine that are decoded before other threads would have woken up


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
    """Chunks of which a mapping shows the bytes in a file, and where."""

    places: dict[bytes, Location]

    def check(self, library: Library) -> None:
        """Raise Corrupt unless each is what it should be. It must be the very copy that was
        mapped: of a chunk that is stored twice, the other may be good and this one damaged."""
        for chunk, place in self.places.items():
            if chunk_id(library.read(place)) != chunk:
                library.backend.distrust(place.volume, place.offset)
                raise Corrupt(f"chunk {chunk.hex()[:16]} is damaged", where=place.where)


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
    if not part.paged or not part.size:
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
        # What is needed once is not kept: its memory is there for the next one.
        get = library.get_shared if uses[run.chunk] > 1 else library.get
        plain = memoryview(get(run.chunk))
        return run.start, plain[run.at * PAGE : run.at * PAGE + run.size]

    todo = [run for run in runs if not isinstance(run, FileRun)]
    uses = Counter(run.chunk for run in todo if isinstance(run, CopyRun))
    few = _FEW if library.backend.traffic is None else 1
    return workers.in_order(decode, todo, 4 * workers.count(), few)


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
        places = library.index.located(table.ids)
        if reader.part.split == "segment":
            library.index.prefer_mappable(table.ids, places)
        grid = leaf * LEAF_BLOCKS * BLOCK
        stretches = [
            (grid + page * PAGE, pages * PAGE, number, at * PAGE)
            for page, pages, number, at in zip(*table.folded(), strict=True)
            if (page // PAGES in table.layers) == layered
        ]
        # Of a chunk that does not lie on the page grid as it is, nothing can be seen.
        seen = [None if place is None or not mappable(place) else place for place in places]
        paths = _paths(library, {place.volume for place in seen if place is not None})
        mapped: dict[bytes, Location] = {}
        there: list[tuple[bytes, int, int, int]] = []
        for start, size, number, at in stretches:
            place = seen[number]
            # A page that the chunk does not fill would show what follows it in the file.
            if place is None or at + size > place.stored or place.volume not in paths:
                yield CopyRun(start, size, table.ids[number], at // PAGE)
            else:
                mapped[table.ids[number]] = place
                there.append((place.volume, start, size, place.offset + at))
        shown.append(Shown(mapped))
        for volume, start, size, offset in _joined(there):
            yield FileRun(start, size, paths[volume], offset)


def _joined(
    stretches: Iterable[tuple[bytes, int, int, int]],
) -> Iterator[tuple[bytes, int, int, int]]:
    """Of stretches in volumes (volume, start, size, offset) those that adjoin, here and there, as
    one."""
    volume, begin, end, shift = b"", 0, 0, 0
    for name, start, size, offset in stretches:
        if start != end or offset - start != shift or name != volume:
            if end > begin:
                yield volume, begin, end - begin, begin + shift
            volume, begin, shift = name, start, offset - start
        end = start + size
    if end > begin:
        yield volume, begin, end - begin, begin + shift


def _paths(library: Library, volumes: set[bytes]) -> dict[bytes, Path]:
    """The files of volumes, of those that have one. Where each has to be fetched first, they are
    fetched at the same time."""
    names = sorted(volumes)
    remote = library.backend.traffic is not None
    ask = workers.fetching().map if remote and len(names) > 1 else map
    found = zip(names, ask(library.backend.path, names), strict=True)
    return {name: path for name, path in found if path is not None}


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
        if os.fstat(fd).st_size < run.offset + run.size:  # what is beyond the end is SIGBUS
            raise Corrupt(f"{run.path.name} ends before byte {run.offset + run.size}")
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
