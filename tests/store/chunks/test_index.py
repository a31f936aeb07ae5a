"""The index: which volume holds a chunk."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import Corrupt
from holdfast.store.chunks.chunk import Location
from holdfast.store.chunks.index import Body, Index
from holdfast.store.chunks.table import Table


def chunk(number: int) -> bytes:
    # Few different beginnings, so that many share the eight bytes that are searched first.
    return (number % 3).to_bytes(8, "big") + number.to_bytes(24, "big")


def place(volume: bytes, number: int) -> Location:
    return Location(volume, 64 + 100 * number, 100, 100 + number, number % 2)


def body(volume: bytes, *numbers: int) -> Body:
    """Chunks one after the other, where `place` says that they are."""
    places = [place(volume, n) for n in numbers]
    sizes = [size for p in places for size in (p.stored, p.plain, p.codec)]
    return Body(volume, places[0].offset, b"".join(map(chunk, numbers)), sizes)


def index_of(packs: dict[bytes, list[int]]) -> Index:
    def load(name: bytes) -> Table:
        numbers = packs[name]
        return Table.of(name, [(chunk(n), place(name, n), bytes(8)) for n in numbers])

    return Index(load)


packs = st.dictionaries(
    st.binary(min_size=16, max_size=16),
    st.lists(st.integers(0, 60), min_size=1, max_size=20, unique=True),
    max_size=8,
)


@given(packs)
@settings(max_examples=60)
def test_every_place_is_found(packs: dict[bytes, list[int]]) -> None:
    index = index_of(packs)
    index.add_packs(list(packs))
    index.add_packs(list(packs))  # again: no difference
    wanted = list(range(70))
    many = index.find_many([chunk(n) for n in wanted])
    for n in wanted:
        expected = {place(name, n) for name, numbers in packs.items() if n in numbers}
        assert set(index.find(chunk(n))) == expected
        assert sorted(many[n]) == sorted(index.find(chunk(n)))
    columns = index.places([chunk(n) for n in wanted])
    volumes = index.volumes([chunk(n) for n in wanted])
    for n in wanted:
        if columns.pack[n] < 0:
            assert volumes[n] is None  # nothing is in the log here
        else:
            name = index.name(int(columns.pack[n]))
            assert volumes[n] == name
            assert n in packs[name]
            assert columns.offset[n] == place(name, n).offset
    present = sorted({n for numbers in packs.values() for n in numbers})
    for n, found in enumerate(index.located([chunk(n) for n in wanted])):
        assert (found is None) == (columns.pack[n] < 0)
        assert found is None or found == place(index.name(int(columns.pack[n])), n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.store.chunks.index.loaded", lambda: False)  # numpy, that is
        for n, found in enumerate(index.located([chunk(n) for n in wanted])):
            assert (found is not None) == (n in present)
            assert found is None or found in index.find(chunk(n))
    assert index.has_all([chunk(n) for n in present])
    assert not index.has_all([chunk(n) for n in [*present, 61]])
    for name, numbers in packs.items():
        assert {c for c, _ in index.rows(name)} == {chunk(n) for n in numbers}


def test_chunks_in_the_log_are_found_and_forgotten() -> None:
    index = index_of({b"p" * 16: [1]})
    index.add_packs([b"p" * 16])
    index.add_bodies([body(b"a" * 16, 1, 2)])
    index.add_bodies([body(b"b" * 16, 2)])
    assert len(index.find(chunk(1))) == 2
    assert index.has_all([chunk(1), chunk(2)])
    assert index.volumes([chunk(n) for n in (1, 2, 3)]) == [b"a" * 16, b"a" * 16, None]
    assert index.rows(b"a" * 16) == [(chunk(n), place(b"a" * 16, n)) for n in (1, 2)]
    index.add_bodies([body(b"b" * 16, 2)], reset=True)
    assert index.find(chunk(2)) == [place(b"b" * 16, 2)]
    index.add_bodies([], reset=True)
    assert index.find(chunk(2)) == []
    assert index.find(chunk(1)) == [place(b"p" * 16, 1)]


def test_a_pack_that_cannot_be_read_is_left_out_until_asked_again() -> None:
    answers: Iterator[Table | Corrupt] = iter(
        [Corrupt("damaged"), Table.of(b"p" * 16, [(chunk(1), place(b"p" * 16, 1), bytes(8))])]
    )

    def load(name: bytes) -> Table:
        answer = next(answers)
        if isinstance(answer, Corrupt):
            raise answer
        return answer

    index = Index(load)
    index.add_packs([b"p" * 16])
    index.add_packs([b"p" * 16])  # not tried again by itself
    assert index.find(chunk(1)) == []
    assert not index.knows(b"p" * 16)
    index.forget_damage()
    index.add_packs([b"p" * 16])
    assert index.knows(b"p" * 16)
    assert len(index.find(chunk(1))) == 1


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_nothing_is_found_where_nothing_is(count: int) -> None:
    index = index_of({b"p" * 16: list(range(count))} if count else {})
    index.add_packs([b"p" * 16] if count else [])
    assert index.find(b"\xff" * 32) == []
    assert index.find_many([]) == []
    assert not np.any(index.places([b"\xff" * 32]).pack >= 0)


@pytest.mark.parametrize("numpy", [False, True])
def test_a_place_that_can_be_mapped_is_preferred(
    numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, odd, raw = bytes([1]) * 16, bytes([2]) * 16, bytes([3]) * 16
    at = {
        packed: Location(packed, 4096, 50, 100, 1),
        odd: Location(odd, 64, 100, 100, 0),
        raw: Location(raw, 8192, 100, 100, 0),
    }
    index = Index(lambda name: Table.of(name, [(chunk(1), at[name], bytes(8))]))
    monkeypatch.setattr("holdfast.store.chunks.index.loaded", lambda: numpy)
    index.add_packs([packed, odd])
    found = index.located([chunk(1), chunk(2)])
    assert found[0] in (at[packed], at[odd])
    assert found[1] is None
    index.prefer_mappable([chunk(1), chunk(2)], found)
    assert found[0] in (at[packed], at[odd])  # there is no better one
    index.add_packs([raw])  # the next time it is known
    found = index.located([chunk(1), chunk(2)])
    index.prefer_mappable([chunk(1), chunk(2)], found)
    assert found == [at[raw], None]


def test_what_was_found_before_is_no_longer_all_when_more_is_there() -> None:
    index = index_of({b"p" * 16: [1], b"q" * 16: [1]})
    index.add_packs([b"p" * 16])
    index.find(chunk(1)).clear()  # what was given is the caller's
    assert index.find(chunk(1)) == [place(b"p" * 16, 1)]
    index.add_packs([b"q" * 16])
    assert len(index.find(chunk(1))) == 2
    index.add_bodies([body(b"a" * 16, 1)])
    assert len(index.find(chunk(1))) == 3
