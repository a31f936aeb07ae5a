"""Chunks: the unit of storing. A chunk is known by the hash of its plaintext."""

from __future__ import annotations

import threading
from typing import NamedTuple

import zstandard
from blake3 import blake3

from holdfast.model.errors import Corrupt
from holdfast.store.cipher import Cipher

Buffer = bytes | bytearray | memoryview

ID_SIZE = 32
MAX_CHUNK = 16 * 1024 * 1024
ZERO_ID = bytes(ID_SIZE)  # stands for "all zero" in maps; no chunk has it

RAW, ZSTD = 0, 1
SEALED = 2  # added to the codec of what is in the box
_LEVEL = 1
_WORTH = 0.95  # zstd must save at least 5%, else the bytes are kept raw

# zstd contexts are not thread-safe and dear to make, so each thread keeps its own.
_local = threading.local()


class Location(NamedTuple):
    """Where a stored chunk lies."""

    volume: bytes
    offset: int
    stored: int
    plain: int
    codec: int

    @property
    def where(self) -> str:
        """The same in words, for whoever looks for the damage."""
        return f"volume {self.volume.hex()}, bytes {self.offset} to {self.offset + self.stored}"


def chunk_id(plain: Buffer) -> bytes:
    """The name of these bytes."""
    return blake3(plain).digest()


def encode(plain: Buffer) -> tuple[int, Buffer]:
    """Codec and stored form: zstd where it is worth it, else the bytes themselves."""
    if len(plain) > 64:
        packed = _compressor().compress(plain)
        if len(packed) < len(plain) * _WORTH:
            return ZSTD, packed
    return RAW, plain


def decode(stored: Buffer, codec: int, plain_size: int, limit: int = MAX_CHUNK) -> Buffer:
    """The plaintext, of exactly the stated length; its id is for the caller to check."""
    if plain_size > limit:
        raise Corrupt(f"a chunk claims {plain_size} bytes, more than any chunk has")
    if codec == RAW:
        plain: Buffer = stored
    elif codec == ZSTD:
        plain = _inflate(stored, plain_size)
    else:
        raise Corrupt(f"unknown codec {codec}")
    if len(plain) != plain_size:
        raise Corrupt(f"a chunk has {len(plain)} bytes instead of {plain_size}")
    return plain


def seal_chunk(cipher: Cipher, codec: int, stored: Buffer, plain_size: int) -> tuple[int, Buffer]:
    """Codec and stored form as the store's cipher wants them."""
    if not cipher.seals:
        return codec, stored
    return codec | SEALED, cipher.seal(stored, _bound(codec, plain_size))


def open_chunk(cipher: Cipher, stored: Buffer, codec: int, plain_size: int) -> tuple[int, Buffer]:
    """The inverse. The length is bound to the box, so it holds before anything is decompressed."""
    if bool(codec & SEALED) != cipher.seals:
        what = "is not encrypted, in a store that is" if cipher.seals else "is encrypted"
        raise Corrupt(f"a chunk {what}")
    inner = codec & ~SEALED
    return inner, cipher.open(stored, _bound(inner, plain_size)) if cipher.seals else stored


def _bound(codec: int, plain_size: int) -> bytes:
    return b"chunk" + bytes([codec]) + plain_size.to_bytes(8, "little")


def _inflate(stored: Buffer, plain_size: int) -> bytes:
    try:
        # The frame states its size; a lie about it must not make us allocate.
        if zstandard.frame_content_size(stored) != plain_size:
            raise Corrupt("a compressed chunk has another length than its row says")
        return _decompressor().decompress(stored, max_output_size=plain_size)
    except zstandard.ZstdError as error:
        raise Corrupt(f"a compressed chunk cannot be read: {error}") from None


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _local.decompressor
    return decompressor
