"""Frames: entries in a file, and what is found when the file is damaged."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import Corrupt, Unsupported
from holdfast.store.log import frames
from holdfast.store.log.frames import Signed

NAME, OTHER = b"N" * 16, b"O" * 16
payloads = st.lists(st.tuples(st.binary(max_size=60), st.binary(max_size=60)), max_size=6)


def signed(seq: int, header: bytes, body: bytes = b"") -> Signed:
    return Signed(seq=seq, key_id=b"k" * 8, mac=b"m" * 32, header=header, body=body)


def log(entries: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(
        frames.encode_frame(signed(i + 1, header, body), NAME)
        for i, (header, body) in enumerate(entries)
    )


@given(payloads)
def test_what_is_written_is_found(entries: list[tuple[bytes, bytes]]) -> None:
    data = log(entries)
    found = frames.scan(data, NAME, base=64, file="f")
    assert [(f.seq, f.header) for f in found.frames] == [
        (i + 1, header) for i, (header, _) in enumerate(entries)
    ]
    for frame, (_, body) in zip(found.frames, entries, strict=True):
        at = frame.body_offset - 64
        assert data[at : at + frame.body_size] == body
        assert (frame.key_id, frame.mac, frame.origin) == (b"k" * 8, b"m" * 32, NAME)
    assert found.damage == []
    assert found.end == 64 + len(data)
    assert len(data) % 8 == 0


def test_a_frame_is_laid_out_as_the_specification_says() -> None:
    data = frames.encode_frame(signed(7, b"header", b"the body"), NAME, OTHER)
    marker, origin, header, body, seq = struct.unpack_from("<16s16sIIQ", data)
    assert (marker, origin, header, body, seq) == (NAME, OTHER, 6, 8, 7)
    assert data[48:56] == b"k" * 8
    assert data[56:88] == b"m" * 32
    assert data[88:104] == blake3(data[:88] + data[104:]).digest()[:16]
    assert data[104:] == b"header" + b"the body" + bytes(2)


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40)), min_size=1, max_size=4),
    st.data(),
)
def test_a_flipped_bit_costs_one_entry(entries: list[tuple[bytes, bytes]], data: st.DataObject):
    pieces = [
        frames.encode_frame(signed(i + 1, header, body), NAME)
        for i, (header, body) in enumerate(entries)
    ]
    which = data.draw(st.integers(0, len(pieces) - 1))
    at = data.draw(st.integers(0, len(pieces[which]) - 1))
    damaged = bytearray(pieces[which])
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    pieces[which] = bytes(damaged)
    found = frames.scan(b"".join(pieces), NAME, base=0, file="f")
    assert [f.seq for f in found.frames] == [i + 1 for i in range(len(pieces)) if i != which]
    (damage,) = found.damage
    assert damage.offset == sum(len(piece) for piece in pieces[:which])
    assert damage.size == len(pieces[which])
    assert damage.torn == (which == len(pieces) - 1)
    assert found.is_clear != damage.torn


@given(payloads, st.integers(1, 500))
def test_a_torn_end_is_marked_as_such(entries: list[tuple[bytes, bytes]], cut: int) -> None:
    data = log([*entries, (b"last header", b"last body")])
    whole = len(log(entries))
    torn = data[: max(whole + 1, len(data) - cut)]
    found = frames.scan(torn, NAME, base=0, file="f")
    if len(torn) == len(data):
        assert found.damage == []
        return
    assert len(found.frames) == len(entries)
    assert found.end == whole
    assert [d.torn for d in found.damage] == [True]
    assert not found.is_clear


@given(st.binary(max_size=300))
def test_garbage_is_damage(garbage: bytes) -> None:
    found = frames.scan(garbage, NAME, base=0, file="f")
    assert found.frames == []
    assert bool(found.damage) == any(garbage)
    strict = frames.scan(garbage, NAME, base=0, file="f", runway=False)
    assert bool(strict.damage) == bool(garbage)


@given(payloads, st.integers(1, 500))
def test_zeros_are_the_end(entries: list[tuple[bytes, bytes]], zeros: int) -> None:
    data = log(entries)
    found = frames.scan(data + bytes(zeros), NAME, base=0, file="f")
    assert (len(found.frames), found.damage, found.end) == (len(entries), [], len(data))
    assert found.is_clear


@given(payloads, st.integers(0, 700), st.integers(0, 700), st.data())
def test_what_stands_among_zeros_is_torn(
    entries: list[tuple[bytes, bytes]], before: int, behind: int, data: st.DataObject
) -> None:
    """Sectors of an entry that was never synced come to the disk in any order."""
    whole = log(entries)
    piece = data.draw(st.binary(min_size=1, max_size=600).filter(any))
    found = frames.scan(whole + bytes(before) + piece + bytes(behind), NAME, base=0, file="f")
    assert len(found.frames) == len(entries)
    assert found.end == len(whole)
    assert [d.torn for d in found.damage] == [True]
    assert not found.is_clear


def test_frames_of_another_file_do_not_count() -> None:
    data = frames.encode_frame(signed(1, b"h"), OTHER)
    assert frames.scan(data, NAME, base=0, file="f").frames == []


def test_damage_says_how_much_and_where() -> None:
    (found,) = frames.scan(b"garbage", NAME, base=64, file="f").damage
    assert str(replace(found, what="the remains")) == "the remains (7 bytes at 64)"


def test_a_length_beyond_reason_is_damage() -> None:
    data = bytearray(frames.encode_frame(signed(1, b"h"), NAME))
    struct.pack_into("<II", data, 32, 2**32 - 1, 2**32 - 1)
    assert frames.scan(bytes(data), NAME, base=0, file="f").frames == []


def test_heads_are_checked() -> None:
    head = frames.file_head(frames.LOG_MAGIC, 9, NAME)
    assert len(head) == frames.FILE_HEAD_SIZE == 64
    frames.check_file_head(head, frames.LOG_MAGIC, NAME)
    for wrong in (head[:-1], head[:20] + b"x" + head[21:], bytes(64)):
        with pytest.raises(Corrupt):
            frames.check_file_head(wrong, frames.LOG_MAGIC, NAME)
    with pytest.raises(Corrupt, match="another file"):
        frames.check_file_head(head, frames.LOG_MAGIC, OTHER)
    with pytest.raises(Corrupt, match="another file"):
        frames.check_file_head(head, frames.SNAP_MAGIC, NAME)
    newer = head[:16] + struct.pack("<I", 2) + head[20:48]
    newer += blake3(newer).digest()[:16]
    with pytest.raises(Unsupported, match="format 2"):
        frames.check_file_head(newer, frames.LOG_MAGIC, NAME)


def test_a_snapshot_keeps_origins_and_leaves_bodies_out() -> None:
    log_data = log([(b"one", b"body one"), (b"two", b"")])
    kept = frames.scan(log_data, NAME, base=0, file="f").frames
    data = frames.encode_snapshot(OTHER, signed(2, b"upto"), kept)
    found = frames.scan(data[64:], OTHER, base=64, file="f").frames
    assert [(f.seq, f.header, f.origin, f.body_size) for f in found] == [
        (2, b"upto", OTHER, 0),
        (1, b"one", NAME, 0),
        (2, b"two", NAME, 0),
    ]
