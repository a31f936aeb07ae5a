"""Archives: the file that checkpoints travel in (spec/archive-v1.md). Written and read from its
beginning to its end, so that it can go through a pipe; no length is believed before it is bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import msgspec
from blake3 import blake3

from holdfast.model.errors import BadInput, Corrupt, HoldfastError, Unsupported, from_os_error
from holdfast.store.chunks.chunk import ID_SIZE, MAX_CHUNK, RAW, ZSTD, Buffer, decode, encode
from holdfast.store.chunks.verified import VerifiedChunk
from holdfast.store.parts.contents import Kind, Named
from holdfast.store.transfer.waybill import (
    HINT,
    MAX_WAYBILL,
    Waybill,
    decode_waybill,
    encode_waybill,
)

VERSION = 1
_MAGIC = b"HOLDFAST-ARCHIVE"
_HEAD = struct.Struct("<16sI28x16s")
_FRAME = struct.Struct("<4sIII16s")
_CHECK = 16
_PIECE = 1024 * 1024
_SMALL = 4096  # frames that are neither a waybill nor a chunk

_KINDS: dict[Kind, bytes] = {
    "pages": b"PAGE",
    "segment": b"SEGM",
    "pieces": b"LIST",
    "node": b"NODE",
    "data": b"DATA",
}
_CHUNKS = {code: kind for kind, code in _KINDS.items()}
_INFO, _WAYBILL, _DONE = b"INFO", b"CKPT", b"DONE"


class Info(msgspec.Struct, frozen=True, array_like=True):
    """What an archive says of itself."""

    time: int
    checkpoints: int
    chunks: int
    size: int  # bytes of the chunks, decoded


@dataclass(frozen=True, slots=True)
class ChunkFrame:
    """A chunk as it stands in an archive."""

    chunk: Named
    content: VerifiedChunk


class ArchiveWriter:
    """Writes one archive; it is whole after `finish`."""

    def __init__(self, stream: BinaryIO, info: Info) -> None:
        self._stream = stream
        self._hasher = blake3()
        self.size = 0
        head = _HEAD.pack(_MAGIC, VERSION, bytes(16))[:-16]
        self._write(head + blake3(head).digest()[:16])
        self._frame(_INFO, msgspec.msgpack.encode(info))

    def waybill(self, waybill: Waybill) -> None:
        data = encode_waybill(waybill)
        if len(data) > MAX_WAYBILL:
            raise BadInput(f"a checkpoint's description has {len(data)} bytes, too many to export")
        codec, stored = encode(data)
        self._frame(_WAYBILL, stored, codec, len(data))

    def chunk(self, chunk: Named, content: VerifiedChunk) -> None:
        size = len(content.plain)
        self._frame(_KINDS[chunk.kind], content.encoded, content.codec, size, content.id)

    def finish(self) -> None:
        self._frame(_DONE, self._hasher.digest())
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise from_os_error(error, "writing the archive") from error

    def _frame(
        self,
        kind: bytes,
        payload: Buffer,
        codec: int = RAW,
        plain: int | None = None,
        chunk: bytes = b"",
    ) -> None:
        size = len(payload) if plain is None else plain
        head = _FRAME.pack(kind, codec, len(payload), size, bytes(_CHECK))[:-_CHECK]
        self._write(head + _check(head, chunk, payload) + chunk)
        self._write(payload)

    def _write(self, data: Buffer) -> None:
        self._hasher.update(data)
        self.size += len(data)
        try:
            self._stream.write(data)
        except BrokenPipeError:
            raise  # whoever read it has left; the command line knows what that means
        except OSError as error:
            raise from_os_error(error, "writing the archive") from error


class ArchiveReader:
    """Reads one archive: its info, then its frames, up to the one that says that it is whole."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hasher = blake3()
        self.position = 0
        self._check_head()
        kind, info, _ = self._next()
        if kind != _INFO:
            raise self._bad("it does not say what it holds")
        try:
            self.info = msgspec.msgpack.decode(info, type=Info)
        except msgspec.MsgspecError as error:
            raise self._bad(f"what it says of itself cannot be read: {error}") from None

    def frames(self) -> Iterator[Waybill | ChunkFrame]:
        """All checkpoints, then all chunks; raises Corrupt unless it ends as it must."""
        waybills = chunks = 0
        while True:
            before = self._hasher.digest()
            kind, payload, content = self._next()
            if kind == _DONE:
                if payload != before:
                    raise self._bad("it is not what was written")
                break
            if kind == _WAYBILL and not chunks:
                waybills += 1
                yield self._waybill(bytes(payload))
            elif content is not None:
                chunks += 1
                yield ChunkFrame(Named(_CHUNKS[kind], content.id), content)
            else:
                raise self._bad(f"a frame {kind!r} has no place there")
            if waybills > self.info.checkpoints or chunks > self.info.chunks:
                raise self._bad("it holds more than it says")
        if (waybills, chunks) != (self.info.checkpoints, self.info.chunks) or not waybills:
            raise self._bad("it holds less than it says")
        if self._stream.read(1):
            raise self._bad("something follows its end")

    def _waybill(self, data: bytes) -> Waybill:
        try:
            return decode_waybill(data)
        except Corrupt as error:
            raise self._bad(str(error)) from None

    def _check_head(self) -> None:
        hint = "`holdfast export` writes such files; one of Podman's: `holdfast container import`"
        head = self._read_some(_HEAD.size)
        if not head.startswith(_MAGIC):
            raise BadInput("this is not an archive of checkpoints", hint=hint)
        if len(head) < _HEAD.size or blake3(head[:48]).digest()[:16] != head[48:]:
            raise self._bad("its head is damaged")
        _, version, _ = _HEAD.unpack(head)
        if version > VERSION:
            raise Unsupported(
                f"the archive has format {version}, this version knows {VERSION}",
                hint="upgrade Holdfast to read it",
            )

    def _next(self) -> tuple[bytes, Buffer, VerifiedChunk | None]:
        """The kind of the next frame, what it holds, and that as a chunk where it is one."""
        head = self._read(_FRAME.size)
        kind, codec, stored, plain, check = _FRAME.unpack(head)
        limit = MAX_CHUNK if kind in _CHUNKS else MAX_WAYBILL if kind == _WAYBILL else _SMALL
        if kind not in (_INFO, _WAYBILL, _DONE, *_CHUNKS):
            raise self._bad("a frame is damaged")
        if plain > limit or stored > plain or codec not in (RAW, ZSTD):
            raise self._bad(f"a frame claims {max(plain, stored)} bytes, more than any has")
        chunk = self._read(ID_SIZE) if kind in _CHUNKS else b""
        payload = self._read(stored)
        if _check(head[:-_CHECK], chunk, payload) != check:
            raise self._bad("a frame does not match its checksum")
        try:
            if kind in _CHUNKS:
                content = VerifiedChunk(chunk, codec, payload, plain)
                return kind, content.plain, content
            return kind, decode(payload, codec, plain, limit), None
        except Corrupt as error:
            raise self._bad(str(error)) from None

    def _read(self, size: int) -> bytes:
        data = self._read_some(size)
        if len(data) < size:
            raise Corrupt(
                f"the archive ends after {self.position} bytes, before it is whole", hint=HINT
            )
        return data

    def _read_some(self, size: int) -> bytes:
        """Up to `size` bytes; less only at the end. Memory is taken as bytes really come."""
        pieces = []
        left = size
        try:
            while left and (piece := self._stream.read(min(left, _PIECE))):
                pieces.append(piece)
                left -= len(piece)
        except OSError as error:
            raise from_os_error(error, "reading the archive") from error
        data = b"".join(pieces)
        self._hasher.update(data)
        self.position += len(data)
        return data

    def _bad(self, what: str) -> HoldfastError:
        return Corrupt(f"the archive is damaged near byte {self.position}: {what}", hint=HINT)


def _check(head: bytes, chunk: bytes, payload: Buffer) -> bytes:
    hasher = blake3(head)
    hasher.update(chunk)
    hasher.update(payload)
    return hasher.digest()[:_CHECK]
