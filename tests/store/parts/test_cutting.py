"""Content-defined cutting: a cut depends on the bytes around it."""

from __future__ import annotations

import io
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.store import Store
from holdfast.store.draft import _cut
from holdfast.store.parts.cutting import MAX_PIECE, MIN_PIECE, cut

KIB = 1024


def pieces(data: bytes) -> list[bytes]:
    ends = cut(memoryview(data), final=True)
    return [data[start:end] for start, end in pairwise([0, *ends])]


def test_pieces_are_between_16_and_64_kib(noise) -> None:
    assert (MIN_PIECE, MAX_PIECE) == (16 * KIB, 64 * KIB)
    for data in (noise(5_000_000), b"the same line\n" * 300_000, bytes(3_000_000)):
        found = pieces(data)
        assert b"".join(found) == data
        assert all(MIN_PIECE <= len(piece) <= MAX_PIECE for piece in found[:-1])
        assert 0 < len(found[-1]) <= MAX_PIECE


def test_pieces_have_about_the_wanted_size(noise) -> None:
    found = pieces(noise(10_000_000))
    assert 28 * KIB < 10_000_000 / len(found) < 44 * KIB


@given(st.binary(max_size=200), st.integers(0, 200_000))
@settings(max_examples=30)
def test_what_is_cut_is_complete(seed: bytes, size: int) -> None:
    data = (seed * (size // max(1, len(seed)) + 1))[:size] if seed else bytes(size)
    assert b"".join(pieces(data)) == data


@given(st.lists(st.integers(1, 3_000_000), max_size=4))
@settings(max_examples=15)
def test_how_a_stream_arrives_does_not_change_the_cuts(noise, steps: list[int]) -> None:
    data = noise(3_000_000)
    whole = pieces(data)
    ends = sorted({0, len(data), *(step for step in steps if step < len(data))})
    given_as = (data[a:b] for a, b in pairwise(ends))
    assert list(_cut(given_as, "content")) == whole
    assert list(_cut(io.BytesIO(data), "content")) == whole


def test_an_insertion_at_the_front_stores_only_a_little(store: Store, save, noise) -> None:
    data = noise(10_000_000)
    first = save(data, "content")
    second = save(b"something new" + data, "content")
    assert store.read(second, "part") == b"something new" + data
    assert first.stored_bytes >= len(data)
    assert second.stored_bytes < 2 * MAX_PIECE + 32 * KIB
    assert store.show(second).parts[0].size == len(data) + 13


def test_a_change_in_the_middle_stores_only_a_little(store: Store, save, noise) -> None:
    data = noise(5_000_000)
    save(data, "content")
    edited = data[:2_000_000] + b"edit" + data[2_000_500:4_000_000] + data[4_001_000:]
    second = save(edited, "content")
    assert store.read(second, "part") == edited
    assert second.stored_bytes < 6 * MAX_PIECE
