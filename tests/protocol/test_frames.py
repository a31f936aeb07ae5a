"""Frames: any cutting of the stream gives the same payloads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import Corrupt
from holdfast.protocol.frames import MAX_FRAME, PIECE, FrameDecoder, encode_frame, pieces


@given(st.lists(st.binary(max_size=200)), st.data())
def test_any_cutting_gives_the_same_payloads(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(encode_frame, payloads))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    decoder = FrameDecoder()
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[start:end])
    assert found == payloads
    assert decoder.pending == 0


def test_half_a_frame_waits() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"\x00\x00\x00\x02a") == []
    assert decoder.pending == 5
    assert decoder.feed(b"b\x00") == [b"ab"]


def test_a_hostile_length_is_refused_before_anything_is_kept() -> None:
    with pytest.raises(Corrupt, match="4294967295"):
        FrameDecoder().feed(b"\xff\xff\xff\xff")
    with pytest.raises(Corrupt):
        encode_frame(bytes(MAX_FRAME + 1))


def test_pieces() -> None:
    assert [(bytes(p), last) for p, last in pieces(b"")] == [(b"", True)]
    long = bytes(PIECE * 2 + 1)
    assert [(len(p), last) for p, last in pieces(long)] == [
        (PIECE, False),
        (PIECE, False),
        (1, True),
    ]
    assert [last for _, last in pieces(bytes(PIECE))] == [True]
