"""Keys, entries and folds: what is written is what is read, and damage is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import Corrupt, HoldfastError
from holdfast.store.backends.objects import layout
from holdfast.store.backends.objects.layout import FoldName
from holdfast.store.log.frames import Frame, Signed

NONCE = b"n" * 16


def signed(seq: int, header: bytes = b"header", body: bytes = b"") -> Signed:
    return Signed(seq=seq, key_id=b"K" * 8, mac=b"M" * 32, header=header, body=body)


def frame(seq: int) -> Frame:
    return Frame(
        seq=seq,
        key_id=b"K" * 8,
        mac=b"M" * 32,
        header=b"h%d" % seq,
        origin=layout.segment_name(1),
        body_offset=5,
        body_size=seq,
    )


@given(st.integers(0, layout.SEGMENT - 1), st.binary(max_size=300), st.binary(max_size=300))
def test_an_entry_comes_back_and_its_body_is_where_it_says(
    after: int, header: bytes, body: bytes
) -> None:
    first, seq = 7, 7 + after
    data = layout.encode_entry_object(signed(seq, header, body), first, NONCE)
    found = layout.decode_entry_object(seq, data, len(data))
    assert found is not None
    assert (found.seq, found.header, found.body_size) == (seq, header, len(body))
    assert layout.segment_first(found.origin) == first
    entry, offset = layout.place_in_segment(first, found.body_offset)
    assert entry == seq
    assert data[offset : offset + found.body_size] == body


def test_the_beginning_of_an_entry_is_enough_if_it_has_the_header() -> None:
    data = layout.encode_entry_object(signed(3, b"h" * 100, b"b" * 10_000), 1, NONCE)
    assert layout.decode_entry_object(3, data[:1000], len(data)) is not None
    for short in (0, 50, 200):
        assert layout.decode_entry_object(3, data[:short], len(data)) is None


def test_no_bit_of_an_entry_flips_unnoticed() -> None:
    data = layout.encode_entry_object(signed(3), 1, NONCE)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(HoldfastError):
            layout.decode_entry_object(3, bytes(damaged), len(damaged))
    with pytest.raises(Corrupt, match="another place"):
        layout.decode_entry_object(4, data, len(data))


@pytest.mark.parametrize("first", [0, 1])
def test_a_fold_comes_back_and_damage_is_named(first: int) -> None:
    name = FoldName.new(first, 9)
    frames = [frame(seq) for seq in range(1, 10)]
    data = layout.encode_fold(name, frames)
    assert layout.decode_fold(name, data) == frames
    assert FoldName.parse(name.key) == name
    assert name.is_snapshot == (first == 0)
    for at in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(HoldfastError):
            layout.decode_fold(name, bytes(damaged))
    with pytest.raises(Corrupt):
        layout.decode_fold(FoldName.new(first, 9), data)  # another one's bytes


@pytest.mark.parametrize(
    "key", ["folds/x", "folds/" + "0" * 16 + ".snap", "other", "folds/-.bundle"]
)
def test_other_keys_are_no_folds(key: str) -> None:
    assert FoldName.parse(key) is None


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 30)), max_size=12))
def test_a_cover_reaches_as_far_as_any_without_a_gap(spans: list[tuple[int, int]]) -> None:
    bundles = [FoldName.new(first, first + more) for first, more in spans]
    chosen = layout.cover(bundles)
    reach = 0
    while grown := [b.last for b in bundles if b.first <= reach + 1 and b.last > reach]:
        reach = max(grown)
    end = 0
    for bundle in chosen:
        assert bundle.first <= end + 1 < bundle.last + 1
        end = bundle.last
    assert end == reach


def test_packs_and_segments_are_told_apart_by_name() -> None:
    assert layout.segment_first(layout.segment_name(12345)) == 12345
    assert layout.segment_first(b"p" * 16) is None
    assert layout.pack_name(layout.pack_key(b"p" * 16)) == b"p" * 16
    assert layout.pack_name("packs/notes.txt") is None
