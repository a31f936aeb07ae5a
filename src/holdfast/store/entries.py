"""Entries: what the log says. Their fold is the store's state (spec/store-v1.md, section 4).

Structures are encoded as arrays; a new field goes to the end and has a default.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.model.errors import Corrupt, Unsupported

VOLUME_SIZE = 16
HERE = bytes(VOLUME_SIZE)  # "the segment this entry was first written to"

Verb = Literal["checkpoint", "rollback", "fork", "restore", "undo", "delete"]


class Commit(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="commit"):
    """A checkpoint came into being, and its subject's head moved to it."""

    id: bytes
    subject: str
    parents: tuple[bytes, ...]
    reason: str
    stage: str | None
    time: int
    tags: dict[str, str]
    digest: bytes
    size: int
    stored: int
    part_count: int
    parts: bytes
    parts_chunk: bytes
    volumes: bytes
    chunk_ids: bytes
    chunk_sizes: tuple[int, ...]
    verb: Verb
    before: bytes | None
    rollback_of: bytes | None
    fence: int = 0


class Move(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="move"):
    """A subject's head moved to another checkpoint, or to none."""

    subject: str
    before: bytes | None
    after: bytes | None
    verb: Verb
    time: int


class Label(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="label"):
    """Tags or the pin of a checkpoint changed."""

    id: bytes
    set: dict[str, str]
    unset: tuple[str, ...]
    pinned: bool | None
    time: int


class Drop(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="drop"):
    """Checkpoints ceased to exist."""

    ids: tuple[bytes, ...]
    time: int


class Relocate(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="relocate"):
    """Live chunks of a volume are now elsewhere."""

    volume: bytes
    to: bytes
    time: int


class Condemn(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="condemn"):
    """No later commit may refer to these volumes."""

    volumes: bytes
    time: int


class Upto(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="upto"):
    """The first frame of a snapshot: everything up to this number is in it."""

    seq: int


Entry = Commit | Move | Label | Drop | Relocate | Condemn | Upto

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)


def encode_entry(entry: Entry) -> bytes:
    return _encoder.encode(entry)


def decode_entry(header: bytes) -> Entry:
    """Read an entry; raises Corrupt, or Unsupported for one of a newer kind."""
    try:
        return _decoder.decode(header)
    except msgspec.ValidationError as error:
        if "Invalid value" in str(error):
            raise Unsupported(
                f"the log has an entry this version does not know: {error}",
                hint="upgrade Holdfast to read this store",
            ) from None
        raise Corrupt(f"an entry does not make sense: {error}") from None
    except msgspec.DecodeError as error:
        raise Corrupt(f"an entry cannot be read: {error}") from None


def split_names(packed: bytes) -> list[bytes]:
    """Cut concatenated volume names."""
    return [packed[i : i + VOLUME_SIZE] for i in range(0, len(packed), VOLUME_SIZE)]
