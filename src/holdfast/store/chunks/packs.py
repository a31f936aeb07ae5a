"""Packs: files that hold chunks and end with a table of them."""

from __future__ import annotations

import secrets
import struct
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial

from blake3 import blake3

from holdfast.model.errors import Corrupt, HoldfastError, Unsupported
from holdfast.store.backends.contract import Backend, PackFile, Volumes
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import RAW, Buffer, Location
from holdfast.store.chunks.table import ROW, Table
from holdfast.store.chunks.verified import VerifiedChunk
from holdfast.store.cipher import PLAIN, Cipher

VERSION = 1
PAGE = 4096
_HEAD = struct.Struct("<16sI12x16s16s")
_FOOT = struct.Struct("<16sQQ16x16s")
_PACK_MAGIC = b"HOLDFAST-PACK".ljust(16, b"\0")
_TABLE_MAGIC = b"HOLDFAST-TABLE".ljust(16, b"\0")
_SEALED_MAGIC = b"HOLDFAST-SEALED".ljust(16, b"\0")
BLOCK = 64  # size of the head and the foot
_RUN = 1024 * 1024  # bytes that go past the file cache at once: a disk is quicker with many
_WAITING = 16  # such runs may wait to be written


def pack_head(name: bytes) -> bytes:
    head = _HEAD.pack(_PACK_MAGIC, VERSION, name, bytes(16))[:-16]
    return head + blake3(head).digest()[:16]


def check_head(data: bytes, name: bytes) -> None:
    """Raise unless this is the head of the pack of that name."""
    magic, version, found, checksum = _HEAD.unpack(data)
    if blake3(data[:48]).digest()[:16] != checksum or magic != _PACK_MAGIC or found != name:
        raise Corrupt("the pack's head is damaged")
    if version > VERSION:
        raise Unsupported(f"a pack has format {version}, this version knows {VERSION}")


def encode_table(rows: Table, at: int, cipher: Cipher = PLAIN) -> bytes:
    """Table and foot of a pack whose chunks end at `at`."""
    table = bytes(cipher.seal(rows.rows, b"table" + rows.name))
    magic = _SEALED_MAGIC if cipher.seals else _TABLE_MAGIC
    foot = _FOOT.pack(magic, at, len(rows), bytes(16))[:-16]
    return table + foot + blake3(table + foot).digest()[:16]


def table_size(rows: int, cipher: Cipher) -> int:
    """How many bytes the table of that many rows has."""
    return rows * ROW + cipher.overhead


def read_table(volumes: Volumes, name: bytes, size: int, cipher: Cipher = PLAIN) -> Table:
    """The table of a pack; raises Corrupt, naming the pack."""
    where = f"{name.hex()}.pack"
    if size < 2 * BLOCK:
        raise Corrupt("the pack is too short", where=where)
    foot = volumes.read(name, size - BLOCK, BLOCK)
    magic, at, count, checksum = _FOOT.unpack(foot)
    if magic == (_TABLE_MAGIC if cipher.seals else _SEALED_MAGIC):
        what = "not encrypted, in a store that is" if cipher.seals else "encrypted"
        raise Corrupt(f"the pack is {what}", where=where)
    length = table_size(count, cipher)
    if magic != (_SEALED_MAGIC if cipher.seals else _TABLE_MAGIC) or at + length + BLOCK != size:
        raise Corrupt("the pack's table is damaged", where=where)
    table = volumes.read(name, at, length)
    if blake3(table + foot[:48]).digest()[:16] != checksum:
        raise Corrupt("the pack's table does not match its checksum", where=where)
    return Table(name, bytes(cipher.open(table, b"table" + name)))


def stored_check(codec: int, stored: Buffer) -> bytes:
    """A checksum of a compressed form: bits of it may flip without changing what comes out.
    Bytes that are stored raw have their id for this."""
    return bytes(8) if codec == RAW else blake3(stored).digest()[:8]


class _OpenPack:
    """One pack being filled: a file, the next free offset, and who is still writing."""

    def __init__(self, backend: Backend, nonce: bytes, cipher: Cipher) -> None:
        self._cipher = cipher
        self.name = nonce + secrets.token_bytes(8)
        self.file: PackFile = backend.create_pack(self.name)
        try:
            self.file.write_at(0, pack_head(self.name))
        except BaseException:
            self.file.discard()
            raise
        self.end = BLOCK
        self.rows: list[tuple[bytes, Location, bytes]] = []
        self.writing = 0
        self.full = False
        self.failed = False  # a write failed: its table would promise what is not there

    def finish(self) -> None:
        if self.failed:
            raise HoldfastError("a chunk could not be written", hint="begin the checkpoint anew")
        at = -(-self.end // BLOCK) * BLOCK
        self.file.write_at(at, encode_table(Table.of(self.name, self.rows), at, self._cipher))
        self.file.publish()


class _Run:
    """Chunks that follow each other in a pack."""

    def __init__(self, pack: _OpenPack, start: int) -> None:
        self.pack = pack
        self.start = self.end = start
        self.pieces: list[Buffer] = []


class PackWriter:
    """Adds chunks to packs from several threads, and publishes full packs beside the work."""

    def __init__(self, backend: Backend, nonce: bytes, cipher: Cipher = PLAIN) -> None:
        self._backend = backend
        self._cipher = cipher
        self._nonce = nonce
        self._executor = workers.writing(backend.transfers)
        self._lock = threading.Lock()
        self._current: _OpenPack | None = None
        self._all: list[_OpenPack] = []
        self._publishing: list[Future[None]] = []
        self._run: _Run | None = None  # that is being put together
        self._writing: deque[Future[None]] = deque()
        self.stored_bytes = 0

    @property
    def names(self) -> list[bytes]:
        """The packs begun so far."""
        return [pack.name for pack in self._all]

    def add(
        self,
        chunk: bytes,
        codec: int,
        stored: Buffer,
        plain: int,
        *,
        aligned: bool = False,
        passing: bool = False,
    ) -> Location:
        """Store one chunk; it is durable after `finish`. Chunks lie in the order in which they are
        added. `passing`: it is written by another thread, past the file cache where that can be
        done, and must stay as it is until `written`; one thread at a time may say so."""
        size = len(stored)
        check = stored_check(codec, stored)
        with self._lock:
            pack = self._current
            if pack is None or (pack.end + size > self._backend.pack_limit and pack.rows):
                pack = self._next()
            start = -(-pack.end // PAGE) * PAGE if aligned else pack.end
            pack.end = start + size
            pack.writing += 1
            place = Location(pack.name, start, size, plain, codec)
            pack.rows.append((chunk, place, check))
            self.stored_bytes += size
        if passing:
            self._pass(pack, start, stored)
        else:
            self._write(pack, 1, lambda: pack.file.write_at(start, stored))
        return place

    def copy(self, chunk: VerifiedChunk, *, aligned: bool = False) -> Location:
        """Store a chunk of the same store once more, in the form in which it is stored; `aligned`
        needs that to be raw."""
        if aligned and chunk.stored_codec != RAW:
            return self.add(chunk.id, RAW, chunk.plain, len(chunk.plain), aligned=True)
        stored, plain = chunk.stored, len(chunk.plain)
        return self.add(chunk.id, chunk.stored_codec, stored, plain, aligned=aligned)

    def _pass(self, pack: _OpenPack, start: int, stored: Buffer) -> None:
        """Put it behind what it follows in the file; whole runs are written by others."""
        run = self._run
        if run is None or run.pack is not pack or run.end != start or run.end - run.start >= _RUN:
            self._begin_run()
            run = self._run = _Run(pack, start)
        run.pieces.append(stored)
        run.end += len(stored)

    def _begin_run(self) -> None:
        """Have what was put together written."""
        run, self._run = self._run, None
        if run is None:
            return
        lay = partial(run.pack.file.lay, run.start, run.pieces)
        self._writing.append(workers.laying().submit(self._write, run.pack, len(run.pieces), lay))
        while len(self._writing) > _WAITING:  # may raise: only when this run is on its way, too
            self._writing.popleft().result()

    def _write(self, pack: _OpenPack, chunks: int, write: Callable[[], None]) -> None:
        try:
            write()
        except BaseException:
            pack.failed = True
            raise
        finally:
            with self._lock:
                pack.writing -= chunks
                if pack.full and not pack.writing:
                    self._publish(pack)

    def written(self) -> None:
        """Wait until nobody needs what is `passing` any more; raises what went wrong with it."""
        self._begin_run()
        while self._writing:
            self._writing.popleft().result()

    def finish(self) -> list[bytes]:
        """Publish everything; returns the packs' names."""
        self.written()
        with self._lock:
            if self._current is not None:
                self._publish(self._current)
                self._current = None
        for future in self._publishing:
            future.result()
        return self.names

    def discard(self) -> None:
        """Forget what was not published; published packs are the collector's."""
        wait(self._writing)
        for future in self._publishing:
            future.exception()
        for pack in self._all:
            pack.file.discard()

    def _next(self) -> _OpenPack:
        if self._current is not None:
            self._current.full = True
            if not self._current.writing:
                self._publish(self._current)
        self._current = _OpenPack(self._backend, self._nonce, self._cipher)
        self._all.append(self._current)
        return self._current

    def _publish(self, pack: _OpenPack) -> None:
        self._publishing.append(self._executor.submit(partial(_OpenPack.finish, pack)))
