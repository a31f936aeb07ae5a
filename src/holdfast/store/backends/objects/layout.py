"""The layout of a bucket: keys, entries and folds. Pure (spec/store-v1.md, section 11)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import zstandard
from blake3 import blake3

from holdfast.model.errors import Corrupt
from holdfast.store.log import frames as framing
from holdfast.store.log.frames import Frame, Signed

SEGMENT = 1024  # entries at most
TRIMMED = b"trimmed\n"
BUNDLE_MAGIC = b"HOLDFAST-BUNDLE\0"
_SLOT_BITS = 32  # of a segment's offset: where in the entry's object
_CHECK = 16
_MAX_FOLD = 4 * 1024**3  # bytes that a fold may have when it is unpacked
_LEVEL = 3
_SLOT = re.compile(r"keys/([0-9a-f]{16})\.json")
_BUNDLE = re.compile(r"folds/([0-9a-f]{16})-([0-9a-f]{16})-([0-9a-f]{16})\.bundle")
_PACK = re.compile(r"packs/([0-9a-f]{32})\.pack")
_SNAPSHOT = re.compile(r"folds/([0-9a-f]{16})-([0-9a-f]{16})\.snap")


# -- keys


def entry_key(seq: int) -> str:
    return f"log/{seq:016x}"


def pack_key(name: bytes) -> str:
    return f"packs/{name.hex()}.pack"


def pack_name(key: str) -> bytes | None:
    match = _PACK.fullmatch(key)
    return bytes.fromhex(match[1]) if match else None


def slot_key(name: str) -> str:
    return f"keys/{name}.json"


def slot_name(key: str) -> str | None:
    match = _SLOT.fullmatch(key)
    return match[1] if match else None


def beat_key(name: bytes) -> str:
    return f"leases/{name.hex()}"


@dataclass(frozen=True, slots=True)
class FoldName:
    """A bundle (from 1 on) or a snapshot (from 0), as its key tells."""

    first: int
    last: int
    key: str

    @property
    def is_snapshot(self) -> bool:
        return self.first == 0

    @classmethod
    def new(cls, first: int, last: int) -> FoldName:
        nonce = secrets.token_hex(8)
        kind = f"{first:016x}-{nonce}.bundle" if first else f"{nonce}.snap"
        return cls(first, last, f"folds/{last:016x}-{kind}")

    @classmethod
    def parse(cls, key: str) -> FoldName | None:
        if match := _BUNDLE.fullmatch(key):
            return cls(int(match[2], 16), int(match[1], 16), key)
        if match := _SNAPSHOT.fullmatch(key):
            return cls(0, int(match[1], 16), key)
        return None


def cover(bundles: Iterable[FoldName]) -> list[FoldName]:
    """The fewest bundles that stand for the log's beginning, as far as any do."""
    bundles = list(bundles)
    chosen: list[FoldName] = []
    end = 0
    while fitting := [b for b in bundles if b.first <= end + 1 and b.last > end]:
        best = max(fitting, key=lambda bundle: bundle.last)
        chosen.append(best)
        end = best.last
    return chosen


# -- segments


def segment_name(first: int) -> bytes:
    return bytes(8) + first.to_bytes(8, "big")


def segment_first(volume: bytes) -> int | None:
    """The seq of a segment's first entry; None for the name of a pack."""
    return None if any(volume[:8]) else int.from_bytes(volume[8:], "big")


def place_in_segment(first: int, offset: int) -> tuple[int, int]:
    """The entry and the offset in its object that an offset of a segment means."""
    return first + (offset >> _SLOT_BITS), offset & ((1 << _SLOT_BITS) - 1)


# -- entries


def encode_entry_object(signed: Signed, first: int, nonce: bytes) -> bytes:
    """The object of one entry of the segment that begins with entry `first`."""
    bare = Signed(seq=signed.seq, key_id=signed.key_id, mac=signed.mac, header=signed.header)
    head = framing.file_head(framing.LOG_MAGIC, signed.seq, nonce)
    return head + framing.encode_frame(bare, nonce, segment_name(first)) + signed.body


def decode_entry_object(seq: int, data: bytes, total: int) -> Frame | None:
    """The entry at the beginning of an object of `total` bytes; None when it needs more of them.
    Raises Corrupt."""
    if len(data) < min(total, framing.FILE_HEAD_SIZE + framing.FRAME_HEAD_SIZE):
        return None
    nonce = framing.file_name(data)
    framing.check_file_head(data, framing.LOG_MAGIC, nonce)
    found = framing.parse(data, framing.FILE_HEAD_SIZE, nonce, 0)
    if found is None:
        if len(data) < total:
            return None
        raise Corrupt("the entry does not match its checksum")
    frame, end = found
    first = segment_first(frame.origin)
    if frame.seq != seq or first is None or not first <= seq < first + SEGMENT:
        raise Corrupt("the entry belongs to another place")
    offset = ((seq - first) << _SLOT_BITS) + end
    return msgspec.structs.replace(frame, body_offset=offset, body_size=total - end)


# -- folds


class _Fold(msgspec.Struct, frozen=True, array_like=True):
    first: int
    last: int
    frames: list[Frame]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Fold)


def encode_fold(name: FoldName, frames: list[Frame]) -> bytes:
    """A bundle or a snapshot."""
    magic = framing.SNAP_MAGIC if name.is_snapshot else BUNDLE_MAGIC
    packed = _encoder.encode(_Fold(name.first, name.last, frames))
    body = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(packed)
    head = framing.file_head(magic, name.last, _marker(name))
    return head + blake3(body).digest()[:_CHECK] + body


def decode_fold(name: FoldName, data: bytes) -> list[Frame]:
    """The frames of a fold; raises Corrupt."""
    magic = framing.SNAP_MAGIC if name.is_snapshot else BUNDLE_MAGIC
    framing.check_file_head(data, magic, _marker(name))
    at = framing.FILE_HEAD_SIZE
    body = data[at + _CHECK :]
    if blake3(body).digest()[:_CHECK] != data[at : at + _CHECK]:
        raise Corrupt("it does not match its checksum")
    try:
        if zstandard.frame_content_size(body) > _MAX_FOLD:
            raise Corrupt("it claims to be larger than it can be")
        fold = _decoder.decode(zstandard.ZstdDecompressor().decompress(body))
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        raise Corrupt(f"it cannot be read: {error}") from None
    if (fold.first, fold.last) != (name.first, name.last):
        raise Corrupt("it stands for other entries than its name says")
    return fold.frames


def _marker(name: FoldName) -> bytes:
    """The head's name field: a fold has no other name than its key."""
    return blake3(name.key.encode()).digest()[: framing.NAME_SIZE]
