"""Printing: exactly the pages that changed are found, also by who tries to hide one."""

from __future__ import annotations

import os

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.parts.test_pagewriter import colliding_pages

from holdfast.store.chunks.chunk import ZERO_ID, chunk_id
from holdfast.store.parts.printing import SECRET_SIZE, Ink, Printing

PAGE, PAGES = 4096, 64
INK = Ink(np.random.default_rng(0).bytes(SECRET_SIZE))


def block(seed: int, pages: int = PAGES) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, (pages, PAGE // 8), dtype=np.uint64)


def told(before: np.ndarray, now: np.ndarray, ink: Ink = INK) -> list[int] | None:
    first = Printing(ink)
    first.enter(chunk_id(before.tobytes()), first.marks(before))
    second = Printing(ink, first.encode())
    changed = second.changed(0, chunk_id(before.tobytes()), second.marks(now))
    return None if changed is None else changed.tolist()


@settings(max_examples=200, deadline=None)
@given(
    changed=st.sets(st.integers(0, PAGES - 1)),
    pages=st.integers(1, PAGES),
    bit=st.integers(0, PAGE * 8 - 1),
    zeros=st.booleans(),
)
def test_exactly_the_pages_that_changed_are_found(
    changed: set[int], pages: int, bit: int, zeros: bool
) -> None:
    before = np.zeros((pages, PAGE // 8), np.uint64) if zeros else block(1, pages)
    now = before.copy()
    inside = sorted(page for page in changed if page < pages)
    for page in inside:
        now[page, bit // 64] ^= np.uint64(1 << (bit % 64))
    assert told(before, now) == inside


@settings(max_examples=100, deadline=None)
@given(used=st.sets(st.integers(0, PAGES - 1)), pages=st.integers(1, PAGES))
def test_few_pages_among_zeros_have_the_same_prints(used: set[int], pages: int) -> None:
    which = np.array(sorted(page for page in used if page < pages), dtype=np.intp)
    whole = np.zeros((pages, PAGE // 8), np.uint64)
    whole[which] = block(9)[which]
    assert INK.marks_among_zeros(pages, which, whole[which]) == INK.marks(whole)


def test_pages_that_change_places_have_changed() -> None:
    before = block(2)
    now = before.copy()
    now[[3, 40]] = now[[40, 3]]
    assert told(before, now) == [3, 40]


def test_pages_that_collide_without_a_secret_are_told_apart() -> None:
    one, other = (np.frombuffer(page, np.uint64) for page in colliding_pages())
    before, now = block(3), block(3)
    before[7], now[7] = one, other
    assert told(before, now, Ink(os.urandom(SECRET_SIZE))) == [7]


def test_a_flip_of_two_highest_bits_is_no_way_around() -> None:
    """Where words of one lane change by 2^63 each, what XXH3 adds up does not change, and what it
    multiplies changes by products of secrets."""
    rng = np.random.default_rng(4)
    before, now = block(5), block(5)
    for page in range(PAGES):
        lane, (one, other) = rng.integers(8), rng.choice(16, 2, replace=False)
        chunk = 128 * int(rng.integers(4))
        for word in (one, other):
            now[page, chunk + 8 * word + lane] ^= np.uint64(1 << 63)
    assert told(before, now) == list(range(PAGES))


def test_what_is_not_known_is_not_guessed() -> None:
    before = block(6)
    first = Printing(INK)
    first.enter(chunk_id(before.tobytes()), first.marks(before))
    for known in (b"", first.encode()[:-1], first.encode() + b"x"):
        printing = Printing(INK, known)
        assert printing.changed(0, chunk_id(before.tobytes()), INK.marks(before)) is None
    printing = Printing(INK, first.encode())
    assert printing.changed(1, chunk_id(before.tobytes()), INK.marks(before)) is None
    assert printing.changed(0, chunk_id(b"another block"), INK.marks(before)) is None


def test_what_did_not_change_keeps_its_prints() -> None:
    before = block(7)
    name = chunk_id(before.tobytes())
    first = Printing(INK)
    first.enter(name, first.marks(before))
    first.enter(ZERO_ID, None)
    second = Printing(INK, first.encode())
    second.enter(name, None)
    second.enter(ZERO_ID, None)
    second.enter(chunk_id(b"never printed"), None)
    third = Printing(INK, second.encode())
    now = before.copy()
    now[9] += np.uint64(1)
    changed = third.changed(0, name, third.marks(now))
    assert changed is not None
    assert changed.tolist() == [9]
    assert third.changed(2, chunk_id(b"never printed"), third.marks(now)) is None


def test_another_secret_gives_other_prints() -> None:
    pages = block(8)
    marks = {Ink(os.urandom(SECRET_SIZE)).marks(pages) for _ in range(8)}
    assert len(marks) == 8
    numbers = np.frombuffer(INK.marks(pages), np.uint64)
    assert len(set(numbers.tolist())) == 2 * PAGES  # and each page two of its own
