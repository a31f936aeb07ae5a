"""Patches: a part taken over with other bytes in some places is what putting it whole gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import BadInput, NotFound
from holdfast.store import Store, open_store, retention
from holdfast.store.parts.blocks import BLOCK, PAGE
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.parts.patching import Fill, Stretch
from holdfast.store.parts.sources import Span

SIZE = 3 * BLOCK + 777


def _first(store: Store, data: bytes, skew: int) -> str:
    with store.draft("session/patched") as draft:
        draft.put("buffers/b1", data, split="segment", skew=skew)
        draft.put("other", b"as it was")
        return draft.commit().id


def _cut(data: bytes, places: list[tuple[int, int]]) -> list[Stretch]:
    def filling(at: int) -> Fill:
        def fill(offset: int, view: memoryview) -> None:
            view[:] = data[at + offset : at + offset + len(view)]

        return fill

    return [(at, n, filling(at)) for at, n in places]


@settings(max_examples=30, deadline=None)
@given(
    skew=st.sampled_from([0, 16, 4095]),
    marks=st.lists(st.integers(0, SIZE), max_size=8, unique=True),
    seed=st.integers(0, 99),
)
def test_a_patch_is_what_putting_it_whole_gives(skew: int, marks: list[int], seed: int) -> None:
    dice = random.Random(seed)
    before = dice.randbytes(SIZE)
    marks = sorted(marks)[: len(marks) // 2 * 2]
    places = [(a, b - a) for a, b in zip(marks[::2], marks[1::2], strict=True)]
    now = bytearray(before)
    for at, length in places:
        if dice.random() < 0.8:  # else it is said to be dirty, and is as it was
            now[at : at + length] = dice.choice([dice.randbytes(length), bytes(length)])
    store = open_store("memory://")
    first = _first(store, before, skew)
    with store.draft("session/patched") as draft:
        draft.patch("buffers/b1", _cut(bytes(now), places), of=first)
        patched = draft.commit()
    with store.draft("session/patched", parent=first) as draft:
        draft.put("buffers/b1", bytes(now), split="segment", skew=skew)
        whole = draft.commit()
    assert store.read(patched, "buffers/b1") == bytes(now)
    assert store.show(patched).parts[0].root == store.show(whole).parts[0].root
    assert store.verify(deep=True).ok


def test_only_what_differs_is_stored() -> None:
    store = open_store("memory://")
    before = random.Random(1).randbytes(4 << 20)
    first = _first(store, before, 16)
    now = bytearray(before)
    now[2 << 20] ^= 1
    with store.draft("session/patched") as draft:
        draft.patch("buffers/b1", _cut(bytes(now), [(0, len(now))]), of=first)
        draft.keep("other", of=first)
        made = draft.commit()
    assert made.stored_bytes < 3 * PAGE
    assert store.read(made, "other") == b"as it was"


def test_a_span_is_read_by_whoever_needs_it() -> None:
    store = open_store("memory://")
    data = random.Random(2).randbytes((2 << 20) + 5)
    with store.draft("session/patched") as draft:
        span = Span(len(data), lambda at, n: data[at : at + n])
        draft.put("buffers/b1", span, split="segment", skew=16)
        made = draft.commit()
    assert store.read(made, "buffers/b1") == data


def test_what_cannot_be_patched() -> None:
    store = open_store("memory://")
    first = _first(store, bytes(9000), 0)
    with store.draft("session/patched") as draft:
        with pytest.raises(NotFound):
            draft.foresee("session/nobody")
        draft.foresee(first)
        with pytest.raises(NotFound):
            draft.patch("buffers/b2", [], of=first)
        with pytest.raises(BadInput, match="pages"):
            draft.patch("other", [], of=first)
        with pytest.raises(BadInput, match="outside"):
            draft.patch("buffers/b1", _cut(bytes(9001), [(8999, 2)]), of=first)


def test_chunks_are_found_where_a_collection_has_moved_them(tmp_path: Path) -> None:
    dice = random.Random(4)
    now = bytearray(dice.randbytes(24 * BLOCK))
    store = open_store(str(tmp_path / "store"))
    last = _first(store, bytes(now), 16)
    for step in range(12):
        at = dice.randrange(len(now) - 3 * BLOCK) // PAGE * PAGE
        length = dice.choice([PAGE, BLOCK + 5 * PAGE, 3 * BLOCK])
        now[at : at + length] = dice.randbytes(length)
        before = last
        with store.draft("session/patched") as draft:
            draft.patch("buffers/b1", _cut(bytes(now), [(at, length)]), of=before)
            last = draft.commit().id
        if step % 3 == 2:
            # What this store remembers of where its chunks are holds no longer.
            store.prune(retention.Last(1))
            assert len(store.list("session/patched")) == 1
    assert store.read(last, "buffers/b1") == bytes(now)
    assert store.verify(deep=True).ok
    used = sum(file.stat().st_size for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert used < 2 * len(now)  # and nothing is held on to that nobody needs
    assert open_store(str(tmp_path / "store")).read(last, "buffers/b1") == bytes(now)


def test_a_block_that_is_new_all_over_is_stored_without_reading_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dice = random.Random(5)
    before, now = dice.randbytes(4 * BLOCK), dice.randbytes(4 * BLOCK)
    store = open_store("memory://")
    first = _first(store, before, 0)
    read: list[int] = []
    whole = PageReader.read
    monkeypatch.setattr(PageReader, "read", lambda self, b: (read.append(b), whole(self, b))[1])
    with store.draft("session/patched") as draft:
        draft.patch("buffers/b1", _cut(now, [(0, len(now))]), of=first)
        patched = draft.commit()
    assert read == []
    assert store.read(patched, "buffers/b1") == now
    # Here and there a word, on every page: that is worth a look, and little is stored.
    sparse = bytearray(now)
    for at in range(0, len(sparse), PAGE):
        sparse[at + 8 : at + 16] = dice.randbytes(8)
    read.clear()
    with store.draft("session/patched") as draft:
        draft.patch("buffers/b1", _cut(bytes(sparse), [(0, len(sparse))]), of=patched.id)
        sprinkled = draft.commit()
    assert sorted(read) == [0, 1, 2, 3]
    assert sprinkled.stored_bytes < BLOCK
    assert store.read(sprinkled, "buffers/b1") == bytes(sparse)


def test_a_block_that_is_new_in_some_places_is_not_taken_for_new_all_over() -> None:
    """Where pages change here and there, a few that are looked at happen to be among them."""
    dice = random.Random(6)
    before = dice.randbytes(4 * BLOCK)
    now, last = bytearray(before), BLOCK // PAGE - 1
    for block in range(4):
        for page in (0, last // 2, last // 2 + 1, last):
            at = block * BLOCK + page * PAGE
            now[at : at + PAGE] = dice.randbytes(PAGE)
    store = open_store("memory://")
    first = _first(store, before, 0)
    with store.draft("session/patched") as draft:
        draft.patch("buffers/b1", _cut(bytes(now), [(0, len(now))]), of=first)
        patched = draft.commit()
    assert patched.stored_bytes < 4 * 5 * PAGE
    assert store.read(patched, "buffers/b1") == bytes(now)
