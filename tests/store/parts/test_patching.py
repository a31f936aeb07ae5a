"""Patches: a part taken over with other bytes in some places is what putting it whole gives."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import BadInput, NotFound
from holdfast.store import Store, open_store
from holdfast.store.parts.blocks import BLOCK, PAGE
from holdfast.store.parts.sources import Span

SIZE = 3 * BLOCK + 777


def _first(store: Store, data: bytes, skew: int) -> str:
    with store.draft("session/patched") as draft:
        draft.put("buffers/b1", data, split="segment", skew=skew)
        draft.put("other", b"as it was")
        return draft.commit().id


def _cut(data: bytes, places: list[tuple[int, int]]) -> list[tuple[int, int, object]]:
    return [(at, n, lambda o, k, at=at: data[at + o : at + o + k]) for at, n in places]


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
        draft.patch("buffers/b1", [(0, len(now), lambda at, n: now[at : at + n])], of=first)
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
            draft.patch("buffers/b2", [], of=first)
        with pytest.raises(BadInput, match="pages"):
            draft.patch("other", [], of=first)
        with pytest.raises(BadInput, match="outside"):
            draft.patch("buffers/b1", [(8999, 2, lambda at, n: bytes(n))], of=first)
