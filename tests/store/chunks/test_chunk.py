"""Chunks: compressed where it is worth it, checked before they are used."""

from __future__ import annotations

import pytest
import zstandard
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import Corrupt
from holdfast.store.chunks import chunk as chunks


@given(st.binary(max_size=4096), st.booleans())
def test_what_is_encoded_decodes(data: bytes, repeat: bool) -> None:
    plain = data * 50 if repeat else data
    codec, stored = chunks.encode(plain)
    assert bytes(chunks.decode(stored, codec, len(plain))) == plain
    assert len(stored) <= len(plain)
    assert chunks.chunk_id(plain) == blake3(plain).digest()


def test_compressible_bytes_are_compressed_and_others_are_not(noise) -> None:
    assert chunks.encode(b"text " * 1000)[0] == chunks.ZSTD
    incompressible = noise(65536)
    assert chunks.encode(incompressible) == (chunks.RAW, incompressible)
    assert chunks.encode(b"tiny")[0] == chunks.RAW


@pytest.mark.parametrize(("zeros", "codec"), [(2000, chunks.RAW), (5000, chunks.ZSTD)])
def test_a_gain_of_less_than_five_percent_is_not_worth_it(noise, zeros: int, codec: int) -> None:
    data = noise(65536 - zeros) + bytes(zeros)
    assert chunks.encode(data)[0] == codec


def test_a_lie_about_the_length_is_not_believed() -> None:
    codec, stored = chunks.encode(bytes(1000))
    for wrong in (999, 1001, 0):
        with pytest.raises(Corrupt):
            chunks.decode(stored, codec, wrong)
    with pytest.raises(Corrupt):
        chunks.decode(b"abc", chunks.RAW, 4)


def test_a_small_frame_cannot_become_huge() -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(chunks.MAX_CHUNK + 1))
    assert len(bomb) < 4096
    for claimed in (16, chunks.MAX_CHUNK, chunks.MAX_CHUNK + 1, 2**40):
        with pytest.raises(Corrupt):
            chunks.decode(bomb, chunks.ZSTD, claimed)


@pytest.mark.parametrize("codec", [2, 255])
def test_an_unknown_codec_is_corrupt(codec: int) -> None:
    with pytest.raises(Corrupt, match="codec"):
        chunks.decode(b"abc", codec, 3)


def test_a_place_says_where_it_is() -> None:
    place = chunks.Location(b"\x0a\xff", 4096, 10, 30, chunks.ZSTD)
    assert place.where == "volume 0aff, bytes 4096 to 4106"


@given(st.binary(max_size=64))
def test_what_is_no_zstd_frame_is_corrupt(garbage: bytes) -> None:
    with pytest.raises(Corrupt):
        chunks.decode(b"\0" + garbage, chunks.ZSTD, 100)
