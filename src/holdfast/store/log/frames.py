"""Frames: how entries stand in a log file. Pure: bytes in, frames and damage out."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from blake3 import blake3

from holdfast.model.errors import Corrupt, Unsupported

Buffer = bytes | bytearray | memoryview

NAME_SIZE = 16
_FILE_HEAD = struct.Struct("<16sI4xQ16s16s")
FILE_HEAD_SIZE = _FILE_HEAD.size
LOG_MAGIC = b"HOLDFAST-LOG".ljust(16, b"\0")
SNAP_MAGIC = b"HOLDFAST-SNAP".ljust(16, b"\0")
VERSION = 1

_HEAD = struct.Struct("<16s16sIIQ8s32s")
_CHECKSUM_SIZE = 16
FRAME_HEAD_SIZE = _HEAD.size + _CHECKSUM_SIZE
MAX_HEADER = 64 * 1024 * 1024
_MAX_BODY = 64 * 1024 * 1024
_ALIGN = 8
REMAINS = 8  # bytes left of an entry that could not be written; too few for a frame


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """An entry ready to be appended: encoded and signed, not yet anywhere."""

    seq: int
    key_id: bytes
    mac: bytes
    header: bytes
    body: Buffer = b""
    frees: bool = False  # lets space be freed, so it may use what is kept for a full disk


class Frame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """An entry as it was found. `body_offset` counts from the start of the volume `origin`."""

    seq: int
    key_id: bytes
    mac: bytes
    header: bytes
    origin: bytes
    body_offset: int
    body_size: int

    def message(self) -> bytes:
        return signed_message(self.seq, self.header)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a log file that are not a frame."""

    file: str
    offset: int
    size: int
    torn: bool  # at the end of the file, as an interrupted append leaves it
    what: str = ""
    unsettled: bool = False  # at the end of the log: damage, or an interrupted append

    def __str__(self) -> str:
        return f"{self.what} ({self.size} bytes at {self.offset})"


class Scan(NamedTuple):
    """What a stretch of a log file holds; `end` is behind the last good frame."""

    frames: list[Frame]
    damage: list[Damage]
    end: int

    @property
    def is_clear(self) -> bool:
        """Whether nothing follows the last good frame, but for the zeros of a runway."""
        return not any(found.torn for found in self.damage)


def signed_message(seq: int, header: bytes) -> bytes:
    """What the MAC covers."""
    return seq.to_bytes(8, "little") + header


def file_head(magic: bytes, seq: int, name: bytes) -> bytes:
    """The first 64 bytes of a segment or a snapshot."""
    head = _FILE_HEAD.pack(magic, VERSION, seq, name, bytes(16))[:-16]
    return head + blake3(head).digest()[:16]


def check_file_head(data: bytes, magic: bytes, name: bytes) -> None:
    """Raise Corrupt or Unsupported unless `data` begins as a file of that name must."""
    if len(data) < FILE_HEAD_SIZE:
        raise Corrupt("the file is too short to have a head")
    found, version, _seq, marker, checksum = _FILE_HEAD.unpack_from(data)
    if blake3(data[: FILE_HEAD_SIZE - 16]).digest()[:16] != checksum:
        raise Corrupt("the file's head does not match its checksum")
    if found != magic or marker != name:
        raise Corrupt("the file's head belongs to another file")
    if version > VERSION:
        raise Unsupported(
            f"the log has format {version}, this version knows {VERSION}", hint="upgrade Holdfast"
        )


def file_name(data: bytes) -> bytes:
    """The name that a file's head states."""
    return data[32:48]


def encode_frame(signed: Signed, marker: bytes, origin: bytes | None = None) -> bytes:
    """The bytes of one frame in the file `marker`."""
    return b"".join(frame_pieces(signed, marker, origin))


def frame_pieces(signed: Signed, marker: bytes, origin: bytes | None = None) -> list[Buffer]:
    """The same as it comes, for who need not put it together."""
    head = _HEAD.pack(
        marker,
        origin or marker,
        len(signed.header),
        len(signed.body),
        signed.seq,
        signed.key_id,
        signed.mac,
    )
    padding = bytes(-(FRAME_HEAD_SIZE + len(signed.header) + len(signed.body)) % _ALIGN)
    checksum = blake3(head)
    for piece in (signed.header, signed.body, padding):
        checksum.update(piece)
    return [head, checksum.digest()[:_CHECKSUM_SIZE], signed.header, signed.body, padding]


def body_offset(signed: Signed, at: int) -> int:
    """Where the body lies when the frame begins at `at`."""
    return at + FRAME_HEAD_SIZE + len(signed.header)


def scan(data: bytes, marker: bytes, *, base: int, file: str, runway: bool = True) -> Scan:
    """Read frames from `data`, which begins at offset `base` of a log file. Zeros at the end are
    its `runway`, where it may have one.

    Where a frame does not check, the next occurrence of the marker that does is looked for,
    so that one damaged entry never hides those after it.
    """
    frames: list[Frame] = []
    damage: list[Damage] = []
    at = 0
    end = 0
    while at < len(data):
        found = parse(data, at, marker, base)
        if found is not None:
            frame, at = found
            frames.append(frame)
            end = at
            continue
        if runway and not data[at] and data.count(0, at) == len(data) - at:
            break
        resumed = _next_good(data, at, marker, base)
        if resumed is None:
            damage.append(Damage(file, base + at, len(data) - at, torn=True))
            break
        damage.append(Damage(file, base + at, resumed - at, torn=False))
        at = resumed
    return Scan(frames, damage, base + end)


def _next_good(data: bytes, at: int, marker: bytes, base: int) -> int | None:
    position = data.find(marker, at + 1)
    while position != -1:
        if parse(data, position, marker, base) is not None:
            return position
        position = data.find(marker, position + 1)
    return None


def parse(data: bytes, at: int, marker: bytes, base: int) -> tuple[Frame, int] | None:
    """The frame at an offset of the data, and where it ends; None when there is no good one."""
    if at + FRAME_HEAD_SIZE > len(data):
        return None
    found, origin, header_size, body_size, seq, key_id, mac = _HEAD.unpack_from(data, at)
    if found != marker or header_size > MAX_HEADER or body_size > _MAX_BODY:
        return None
    start = at + FRAME_HEAD_SIZE
    size = FRAME_HEAD_SIZE + header_size + body_size
    end = at + size + (-size % _ALIGN)
    if end > len(data):
        return None
    view = memoryview(data)
    checksum = blake3(view[at : at + _HEAD.size])
    checksum.update(view[start:end])
    if checksum.digest()[:_CHECKSUM_SIZE] != data[at + _HEAD.size : start]:
        return None
    frame = Frame(
        seq=seq,
        key_id=key_id,
        mac=mac,
        header=data[start : start + header_size],
        origin=origin,
        body_offset=base + start + header_size,
        body_size=body_size,
    )
    return frame, end


def encode_snapshot(name: bytes, upto: Signed, frames: Iterable[Frame]) -> bytes:
    """A whole snapshot file: the `upto` entry, then the frames that matter, without bodies."""
    pieces = [file_head(SNAP_MAGIC, upto.seq, name), encode_frame(upto, name)]
    for frame in frames:
        signed = Signed(seq=frame.seq, key_id=frame.key_id, mac=frame.mac, header=frame.header)
        pieces.append(encode_frame(signed, name, frame.origin))
    return b"".join(pieces)
