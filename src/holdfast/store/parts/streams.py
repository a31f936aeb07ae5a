"""Streams: a part as a file that can be read and sought, verified while it is read."""

from __future__ import annotations

import errno
import io
import os
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from typing import Protocol

import msgspec

from holdfast.model.errors import Corrupt, from_os_error
from holdfast.store.backends.contract import Hold
from holdfast.store.backends.files import BITE, write_all
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import ZERO_ID, Buffer
from holdfast.store.chunks.library import Library
from holdfast.store.parts.blocks import BLOCK
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.parts.part import PartRecord, Pieces, decode_pieces, split_ids
from holdfast.store.parts.structure import read_value

_BATCH = 16  # pieces handled by one task when a part is copied out


class PartPieces(Protocol):
    """A part as a sequence of pieces, each fetched on its own."""

    def __len__(self) -> int: ...

    def span(self, index: int) -> tuple[int, int]:
        """Start and end of a piece within the part."""
        ...

    def find(self, offset: int) -> int:
        """The piece that holds the byte at `offset`."""
        ...

    def fetch(self, index: int) -> Buffer | None:
        """The piece's bytes, verified; None when they are all zero."""
        ...


class _BlockPieces:
    """Blocks of a `pages` or `segment` part, without what the skew put in front."""

    def __init__(self, library: Library, part: PartRecord) -> None:
        self._reader = PageReader(library, part)
        self._skew = part.skew

    def __len__(self) -> int:
        return self._reader.block_count

    def span(self, index: int) -> tuple[int, int]:
        start = index * BLOCK
        end = start + self._reader.block_size(index)
        return max(0, start - self._skew), end - self._skew

    def find(self, offset: int) -> int:
        return (offset + self._skew) // BLOCK

    def fetch(self, index: int) -> Buffer | None:
        if self._reader.hash(index) == ZERO_ID:
            return None
        data = self._reader.read(index)
        return data[self._skew :] if index == 0 and self._skew else data


class _ChunkPieces:
    """Pieces of a `whole` or `content` part."""

    def __init__(self, library: Library, part: PartRecord) -> None:
        self._library = library
        self._ids: list[bytes] = []
        self._ends: list[int] = []
        end = 0
        for leaf in part_leaves(library, part):
            for chunk, length in zip(split_ids(leaf.ids), leaf.lengths, strict=True):
                end += length
                self._ids.append(chunk)
                self._ends.append(end)
        if end != part.size:
            raise Corrupt(f"the map of part {part.name!r} has the wrong length")

    def __len__(self) -> int:
        return len(self._ids)

    def span(self, index: int) -> tuple[int, int]:
        return (self._ends[index - 1] if index else 0), self._ends[index]

    def find(self, offset: int) -> int:
        return bisect_right(self._ends, offset)

    def fetch(self, index: int) -> Buffer | None:
        data = self._library.get(self._ids[index])
        start, end = self.span(index)
        if len(data) != end - start:
            raise Corrupt("a piece has another length than its map says")
        return data


class _ValuePieces:
    """A structure as its plain msgpack encoding."""

    def __init__(self, library: Library, part: PartRecord) -> None:
        self._data = msgspec.msgpack.encode(read_value(part.root, library.get, library.get_many))

    def __len__(self) -> int:
        return 1 if self._data else 0

    def span(self, index: int) -> tuple[int, int]:
        return 0, len(self._data)

    def find(self, offset: int) -> int:
        return 0

    def fetch(self, index: int) -> Buffer | None:
        return self._data


def part_leaves(library: Library, part: PartRecord) -> Iterator[Pieces]:
    """The leaves of a `whole` or `content` part."""
    if part.inline:
        yield decode_pieces(part.map)
        return
    for leaf in part.leaf_ids():
        yield decode_pieces(bytes(library.get(leaf)))


def pieces_of(library: Library, part: PartRecord) -> PartPieces:
    if part.paged:
        return _BlockPieces(library, part)
    if part.split == "structure":
        return _ValuePieces(library, part)
    return _ChunkPieces(library, part)


class PartStream(io.RawIOBase):
    """A part as a read-only binary file."""

    def __init__(self, library: Library, part: PartRecord, hold: Hold | None = None) -> None:
        self.part = part
        self._hold = hold
        self._pieces = pieces_of(library, part)
        self._size = self._pieces.span(len(self._pieces) - 1)[1] if len(self._pieces) else 0
        self._position = 0
        self._current = -1
        self._data: Buffer = b""

    def close(self) -> None:
        if not self.closed and self._hold is not None:
            self._hold.release()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}
        if whence not in bases:
            raise ValueError(f"invalid whence: {whence}")
        if bases[whence] + offset < 0:  # as a file does; `zipfile` goes by it
            raise OSError(errno.EINVAL, "a seek to before the beginning of the part")
        self._position = bases[whence] + offset
        return self._position

    def readinto(self, buffer: Buffer) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        if self._position >= self._size or not len(view):
            return 0
        index = self._pieces.find(self._position)
        start, end = self._pieces.span(index)
        if index != self._current:
            found = self._pieces.fetch(index)
            self._data = bytes(end - start) if found is None else found
            self._current = index
        offset = self._position - start
        count = min(len(view), end - self._position)
        view[:count] = memoryview(self._data)[offset : offset + count]
        self._position += count
        return count

    def copy_to(self, fd: int, at: int = 0) -> int:
        """Write the whole part to a file, from byte `at` on, with several threads; zeros become
        holes."""
        try:
            os.ftruncate(fd, at + self._size)
        except OSError as error:
            raise from_os_error(error, "restoring a part") from error
        batches = range(0, len(self._pieces), _BATCH)
        for _ in workers.in_order(partial(self._copy_batch, fd, at), batches, 4 * workers.count()):
            pass
        return self._size

    def _copy_batch(self, fd: int, start: int, first: int) -> None:
        # Small neighbours are written together; each call costs a lock of the file.
        pending: list[Buffer] = []
        at = size = 0
        for index in range(first, min(first + _BATCH, len(self._pieces))):
            data = self._pieces.fetch(index)
            if pending and (data is None or size + len(data) > BITE):
                _write(fd, pending, at)
                pending, size = [], 0
            if data is not None:
                at = at if pending else start + self._pieces.span(index)[0]
                pending.append(data)
                size += len(data)
        _write(fd, pending, at)


def _write(fd: int, pieces: list[Buffer], at: int) -> None:
    try:
        write_all(fd, pieces[0] if len(pieces) == 1 else b"".join(pieces), at)
    except OSError as error:
        raise from_os_error(error, "restoring a part") from error
