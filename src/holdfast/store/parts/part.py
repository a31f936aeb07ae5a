"""Parts as they stand in a commit: a name, a root, and a map to chunks (spec, section 5)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

import msgspec
from blake3 import blake3

from holdfast.model.checkpoint import Part, Split
from holdfast.model.errors import BadInput, Corrupt
from holdfast.store.chunks.chunk import ID_SIZE

INLINE_LEAF = 512  # a part with one leaf of at most this size carries it itself
INLINE_PARTS = 4096  # a longer list of parts becomes a chunk
_HALF = re.compile(r"[\ud800-\udfff]")  # half a character: no UTF-8 can hold it
PIECES = 1024  # pieces in a leaf of a `whole` or `content` part
PAGED: tuple[Split, ...] = ("pages", "segment")  # what has a map of pages


class PartRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One part of a commit. `volumes` are indexes into the commit's list of volumes."""

    name: str
    size: int
    split: Split
    root: bytes
    skew: int
    inline: bool
    map: bytes
    volumes: tuple[int, ...]

    @property
    def paged(self) -> bool:
        """Whether its leaves are maps of pages."""
        return self.split in PAGED

    def leaf_ids(self) -> list[bytes]:
        """The leaf chunks; none when the leaf stands here or the part is a structure."""
        return [] if self.inline else split_ids(self.map)

    def value(self) -> Part:
        return Part(name=self.name, size=self.size, split=self.split, root=self.root.hex())


class Pieces(msgspec.Struct, frozen=True, array_like=True):
    """A leaf of a `whole` or `content` part."""

    ids: bytes
    lengths: tuple[int, ...]


_parts_decoder = msgspec.msgpack.Decoder(tuple[PartRecord, ...])
_pieces_decoder = msgspec.msgpack.Decoder(Pieces)


def encode_parts(parts: Iterable[PartRecord]) -> bytes:
    return msgspec.msgpack.encode(sorted(parts, key=lambda part: part.name))


def decode_parts(data: bytes) -> tuple[PartRecord, ...]:
    try:
        return _parts_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"the list of parts cannot be read: {error}") from None


def encode_pieces(pieces: Pieces) -> bytes:
    return msgspec.msgpack.encode(pieces)


def decode_pieces(data: bytes) -> Pieces:
    try:
        pieces = _pieces_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the map of a part cannot be read: {error}") from None
    if len(pieces.ids) != ID_SIZE * len(pieces.lengths) or min(pieces.lengths, default=0) < 0:
        raise Corrupt("the map of a part makes no sense")
    return pieces


def pieces_root(pieces: Iterable[tuple[bytes, int]]) -> bytes:
    hasher = blake3()
    for chunk, length in pieces:
        hasher.update(chunk + length.to_bytes(8, "little"))
    return hasher.digest()


def split_ids(packed: bytes) -> list[bytes]:
    return [packed[i : i + ID_SIZE] for i in range(0, len(packed), ID_SIZE)]


class Stated(Protocol):
    """What a checkpoint says of itself, besides its parts: a commit, or a waybill."""

    @property
    def id(self) -> bytes: ...
    @property
    def subject(self) -> str: ...
    @property
    def parents(self) -> tuple[bytes, ...]: ...
    @property
    def reason(self) -> str: ...
    @property
    def stage(self) -> str | None: ...
    @property
    def time(self) -> int: ...
    @property
    def tags(self) -> dict[str, str]: ...
    @property
    def rollback_of(self) -> bytes | None: ...


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The same of a checkpoint in the making."""

    id: bytes
    subject: str
    parents: tuple[bytes, ...]
    reason: str
    stage: str | None
    time: int
    tags: dict[str, str]
    rollback_of: bytes | None


def digest(facts: Stated, parts: Iterable[PartRecord]) -> bytes:
    """The hash of the logical manifest: it names plaintext only (spec, section 7)."""
    listed = [
        [part.name, part.size, part.split, part.root, part.skew]
        for part in sorted(parts, key=lambda part: part.name)
    ]
    manifest = [
        1,
        facts.id,
        facts.subject,
        list(facts.parents),
        facts.reason,
        facts.stage,
        facts.time,
        sorted([name, value] for name, value in facts.tags.items()),
        facts.rollback_of,
        listed,
    ]
    return blake3(msgspec.msgpack.encode(manifest)).digest()


@lru_cache(maxsize=256)  # levels give the same few names again and again
def check_part_name(name: str) -> None:
    """Part names are relative paths without surprises; raises BadInput."""
    segments = name.split("/")
    if (
        not name
        or len(name) > 1024
        or "\0" in name
        or _HALF.search(name)
        or any(segment in ("", ".", "..") for segment in segments)
    ):
        raise BadInput(
            f"bad part name: {name!r}", hint="a relative path such as memory/pages-1.img"
        )
