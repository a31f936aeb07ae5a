"""Moves: pages that stand elsewhere than in the parent cost nothing, and every byte comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.parts.test_deltas import scattered

from holdfast.model.checkpoint import Checkpoint
from holdfast.store import Store, open_store
from holdfast.store.parts.moves import fingerprints

PAGE = 4096
BLOCK = 64 * PAGE
SPLITS = ["pages", "segment"]
# What a checkpoint takes besides its pages: maps, and the entry of the log.
FRAME = 6 * PAGE


@pytest.fixture(params=["plain", "encrypted"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def put(store: Store, data: bytes, split: Any = "segment", skew: int = 0) -> Checkpoint:
    with store.draft("sandbox/x") as draft:
        draft.put("image", data, split, skew=skew, moved=True)
        return draft.commit()


def comes_back(store: Store, checkpoint: Checkpoint, data: bytes) -> None:
    assert store.read(checkpoint, "image") == data
    with store.map(checkpoint, "image", verify="first") as mapping:
        assert bytes(mapping.view) == data


def pages_of(data: bytes) -> list[bytes]:
    return [data[at : at + PAGE] for at in range(0, len(data), PAGE)]


@pytest.mark.parametrize("split", SPLITS)
def test_an_image_that_moved_by_a_page_is_not_stored_again(
    store: Store, noise, split: Any, tmp_path: Path
) -> None:
    versions = [noise(20 * BLOCK + 77 * PAGE)]
    for step in range(3):  # what has moved can move again
        versions.append(versions[-1][: 3 * PAGE] + noise(PAGE, step + 1) + versions[-1][3 * PAGE :])
    versions.append(versions[-1][9 * PAGE :])
    made = [put(store, data, split) for data in versions]
    # The page that is new, and what a block has too little of to be worth looking elsewhere.
    assert all(each.stored_bytes < 12 * PAGE + FRAME for each in made[1:])
    for checkpoint, data in zip(made, versions, strict=True):
        comes_back(store, checkpoint, data)
    assert store.diff(made[0], made[1]).parts[0].changed_bytes > 19 * BLOCK
    store.delete(*made[:-1])
    store.prune()
    assert store.verify(deep=True).ok
    comes_back(store, made[-1], versions[-1])
    store.export(made[-1], tmp_path / "archive")
    with open_store(tmp_path / "other") as other:
        other.import_(tmp_path / "archive", trust=True)
        assert other.read(made[-1].id, "image") == versions[-1]


@given(
    lengths=st.lists(st.integers(64, 400), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
    changed=st.sets(st.integers(0, 2399), max_size=3),
    emptied=st.sets(st.integers(0, 2399), max_size=3),
    cut=st.integers(0, PAGE),
    skew=st.sampled_from([0, 16]),
    split=st.sampled_from(SPLITS),
)
@settings(max_examples=15)
def test_long_runs_in_another_order_are_found(
    lengths: list[int],
    order: Any,
    changed: set[int],
    emptied: set[int],
    cut: int,
    skew: int,
    split: Any,
) -> None:
    random = np.random.default_rng(len(lengths))
    runs = [[random.bytes(PAGE) for _ in range(length)] for length in lengths]
    before = b"".join(page for run in runs for page in run)
    order.shuffle(runs)
    pages = [page for run in runs for page in run]
    for number in changed:
        pages[number % len(pages)] = random.bytes(PAGE)
    for number in emptied:
        pages[number % len(pages)] = bytes(PAGE)
    after = b"".join(pages)
    after = after[: len(after) - cut]
    with open_store("memory://") as store:
        put(store, before, split, skew)
        second = put(store, after, split, skew)
        # Of each run there is a rest in the blocks at its ends; with a skew, a page across both.
        new = len(changed) * (2 if skew else 1) + 2 * len(emptied) * bool(skew)
        assert second.stored_bytes <= (new + 9 * len(lengths) + 1) * PAGE + FRAME
        comes_back(store, second, after)
        third = put(store, before, split, skew)
        comes_back(store, third, before)
        assert store.verify(deep=True).ok
        store.delete(second)
        store.prune()
        comes_back(store, third, before)


def test_pages_that_were_shuffled_one_by_one_are_stored_whole(store: Store, noise) -> None:
    data = noise(8 * BLOCK)
    put(store, data)
    pages = pages_of(data)
    np.random.default_rng(0).shuffle(pages)
    second = put(store, b"".join(pages))
    assert second.stored_bytes >= len(data)  # reading it back would jump for every page
    comes_back(store, second, b"".join(pages))


def test_a_forged_fingerprint_is_not_taken_for_a_page_that_moved(store: Store, noise) -> None:
    pages = np.frombuffer(noise(8 * PAGE, 3), np.uint64).reshape(8, -1)
    other = pages.copy()
    other[:, [3, 9]] ^= np.uint64(1 << 63)  # twice the same odd thing, modulo 2**64
    assert (fingerprints(pages) == fingerprints(other)).all()
    before = noise(2 * BLOCK) + pages.tobytes() + noise(2 * BLOCK, 1)
    after = noise(5 * PAGE, 2) + noise(2 * BLOCK) + other.tobytes() + noise(2 * BLOCK, 1)
    put(store, before)
    moved = put(store, after)
    comes_back(store, moved, after)
    assert moved.stored_bytes < (5 + 8 + 8) * PAGE + FRAME
    assert put(store, after[5 * PAGE :] + other.tobytes()).stored_bytes < 8 * PAGE + FRAME


def test_blocks_with_deltas_are_not_pointed_into(store: Store, noise) -> None:
    data = noise(8 * BLOCK)
    put(store, data)
    data = scattered(data, 1)
    assert put(store, data).stored_bytes < BLOCK
    data = noise(3 * PAGE, 5) + data
    comes_back(store, put(store, data), data)
    data = noise(PAGE, 6) + data
    last = put(store, data)
    assert last.stored_bytes < 8 * PAGE + FRAME  # found where it was stored whole
    comes_back(store, last, data)


def test_what_lies_behind_the_end_of_the_parent_is_looked_for_in_it(store: Store, noise) -> None:
    data = noise(6 * BLOCK)
    put(store, data)
    grown = noise(BLOCK, 1) + noise(BLOCK + PAGE, 2) + data
    second = put(store, grown)
    assert second.stored_bytes < 2 * BLOCK + 8 * PAGE + FRAME
    comes_back(store, second, grown)


@pytest.mark.parametrize("split", SPLITS)
def test_what_a_damaged_parent_has_is_not_referred_to(
    store: Store, place: Path, noise, split: Any, kind: str
) -> None:
    data = noise(12 * BLOCK)
    put(store, data, split)
    (pack,) = place.glob("packs/*.pack")
    stored = bytearray(pack.read_bytes())
    at = len(stored) // 2 if kind == "encrypted" else stored.find(data[5 * BLOCK :][:64])
    stored[at] ^= 1
    pack.write_bytes(stored)
    data = noise(PAGE, 1) + data
    with open_store(place) as again:
        second = put(again, data, split)
        assert second.stored_bytes < 3 * BLOCK + FRAME
        comes_back(again, second, data)
