"""Verified chunks: the only form in which stored bytes are copied.

Export, copying to another store, import, pruning and storing a chunk anew all take a
`VerifiedChunk`, and none can be made of bytes that do not match the chunk's id. So damage is never
copied: not with a new checksum that hides it, and not over the last good copy. A test lists every
place that reads stored bytes without this class, with what verifies them instead.
"""

from __future__ import annotations

from holdfast.model.errors import Corrupt
from holdfast.store.chunks.chunk import Buffer, chunk_id, decode, open_chunk
from holdfast.store.cipher import PLAIN, Cipher


class VerifiedChunk:
    """The stored form and the plaintext of one chunk, which match its id. Making one raises Corrupt
    where they do not."""

    __slots__ = ("codec", "encoded", "id", "plain", "stored", "stored_codec")

    def __init__(
        self, chunk: bytes, codec: int, stored: Buffer, plain_size: int, cipher: Cipher = PLAIN
    ) -> None:
        inner, encoded = open_chunk(cipher, stored, codec, plain_size)
        plain = decode(encoded, inner, plain_size)
        if chunk_id(plain) != chunk:
            raise Corrupt(f"chunk {chunk.hex()[:16]} is damaged: it does not match its id")
        self.id = chunk
        self.plain = plain
        # As the store that it was read from keeps it: encrypted where that one is.
        self.stored_codec, self.stored = codec, stored
        # The same without encryption, for another store or an archive.
        self.codec, self.encoded = inner, encoded
