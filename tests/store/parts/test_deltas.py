"""Deltas: few words changed on most pages cost few bytes, and every byte comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import Corrupt
from holdfast.store import Store, open_store
from holdfast.store.parts import deltas
from holdfast.store.parts.blocks import PageTable

PAGE = 4096
BLOCK = 64 * PAGE
SIZE = 8 * BLOCK + 5 * PAGE + 123


@pytest.fixture(params=["plain", "encrypted"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def scattered(data: bytes, step: int) -> bytes:
    """Another word on every page."""
    words = np.frombuffer(data[: len(data) // 8 * 8], dtype="<u8").copy()
    words[step::100] += np.uint64(1 + step)
    return words.tobytes() + data[len(data) // 8 * 8 :]


def put(store: Store, data: bytes, parent: str | None = "head", split: Any = "segment") -> Any:
    with store.draft("session/x", parent=parent) as draft:
        draft.put("buffer", data, split, skew=16)
        return draft.commit()


@pytest.mark.parametrize("split", ["pages", "segment"])
def test_a_word_on_every_page_is_stored_as_a_word(store: Store, noise, split: Any) -> None:
    data = noise(SIZE)
    versions = [data]
    made = [put(store, data, None, split)]
    for step in range(20):  # more than deltas are laid upon each other
        data = scattered(data, step)
        versions.append(data)
        made.append(put(store, data, split=split))
    # 1.2% of the words at each step; now and then a few steps are put together.
    added = [checkpoint.stored_bytes for checkpoint in made[1:]]
    assert sorted(added)[10] < SIZE // 30
    assert sum(added) < SIZE
    for checkpoint, content in zip(made, versions, strict=True):
        assert store.read(checkpoint, "buffer") == content
        with store.map(checkpoint, "buffer", verify="first") as mapping:
            assert bytes(mapping.view) == content
    assert store.verify(deep=True).ok
    found = store.diff(made[0], made[1]).parts[0]
    assert found.changed_bytes >= SIZE // PAGE * PAGE


def test_what_deltas_lie_on_stays_as_long_as_they_do(store: Store, noise) -> None:
    data = noise(SIZE)
    made = [put(store, data, None)]
    for step in range(12):
        data = scattered(data, step)
        made.append(put(store, data))
    for checkpoint in made[:-1]:
        store.delete(checkpoint)
    store.prune()
    assert store.read(made[-1], "buffer") == data
    assert store.verify(deep=True).ok
    after = scattered(data, 50)
    assert store.read(put(store, after), "buffer") == after


def test_deltas_travel(store: Store, noise, tmp_path: Path) -> None:
    data = noise(SIZE)
    put(store, data, None)
    for step in range(3):
        data = scattered(data, step)
        last = put(store, data)
    store.export(last, tmp_path / "file.holdfast")
    with open_store(tmp_path / "other", encrypt=False) as other:
        there = other.import_(tmp_path / "file.holdfast")
        assert other.read(there, "buffer", trust=True) == data
        assert other.verify(deep=True).ok
        assert there.digest == last.digest


def test_few_pages_of_a_block_with_deltas(store: Store, noise) -> None:
    data = bytearray(scattered(noise(SIZE), 0))
    put(store, noise(SIZE), None)
    put(store, bytes(data))
    for at in (0, BLOCK + 5, SIZE - 9):
        data[at : at + 9] = b"something"
    last = put(store, bytes(data))
    assert last.stored_bytes < 20 * PAGE
    assert store.read(last, "buffer") == bytes(data)


@pytest.mark.parametrize("size", [SIZE - 1, SIZE - 300, SIZE - 2 * BLOCK, SIZE + 1, SIZE + BLOCK])
def test_what_has_deltas_grows_and_shrinks(store: Store, noise, size: int) -> None:
    data = noise(SIZE)
    put(store, data, None)
    data = scattered(data, 0)
    put(store, data)
    other = data[:size] + bytes(max(0, size - SIZE))
    assert store.read(put(store, other), "buffer") == other
    again = scattered(other, 1)
    assert store.read(put(store, again), "buffer") == again
    assert store.read(put(store, data), "buffer") == data
    assert store.verify(deep=True).ok


def test_zeros_and_noise_take_deltas_away(store: Store, noise) -> None:
    data = scattered(noise(SIZE), 0)
    put(store, noise(SIZE), None)
    put(store, data)
    for content in (bytes(SIZE), noise(SIZE, seed=9), bytes(BLOCK) + data[BLOCK:]):
        assert store.read(put(store, content), "buffer") == content
    assert store.verify(deep=True).ok


def test_a_damaged_delta_is_found(place: Path, store: Store, noise, kind: str) -> None:
    data = noise(SIZE)
    put(store, data, None)
    now = put(store, scattered(data, 0))
    if now.stored_bytes > 1 << 20:
        pytest.fail("the test expects its deltas in the log")
    log = max((place / "log").glob("*.log"), key=lambda path: path.stat().st_mtime)
    raw = bytearray(log.read_bytes())
    raw[-now.stored_bytes // 2] ^= 0xFF
    log.write_bytes(raw)
    with open_store(place, create=False) as again:
        assert not again.verify(deep=True).ok


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_delta_leads_from_one_block_to_the_other(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([512, 1024, 32768]))
    dice = np.random.default_rng(data.draw(st.integers(0, 999)))
    before = dice.integers(0, 2**64, size, dtype=np.uint64)
    now = before.copy()
    count = data.draw(st.integers(0, size // 2))
    where = dice.choice(size, count, replace=False)
    now[where] = dice.integers(0, 2**64, count, dtype=np.uint64)
    made = deltas.encode(before, now)
    if made is None:
        assert count > size // 4
        return
    lead = data.draw(st.integers(0, 9))
    deltas.apply(before, b"x" * lead + made + b"more", lead)
    assert np.array_equal(before, now)


@pytest.mark.parametrize("bad", ["short", "outside", "twice", "many"])
def test_a_delta_that_cannot_be_is_refused(bad: str) -> None:
    before = np.zeros(512, dtype=np.uint64)
    now = before.copy()
    now[[3, 500]] = 7
    made = bytearray(deltas.encode(before, now) or b"")
    match bad:
        case "short":
            del made[-1]
        case "outside":
            made[6:8] = (600).to_bytes(2, "little")
        case "twice":
            made[6:8] = bytes(2)
        case "many":
            made[:4] = b"\xff" * 4
    with pytest.raises(Corrupt):
        deltas.apply(before, bytes(made), 0)


def test_a_map_without_deltas_is_written_as_ever() -> None:
    table = PageTable(2)
    table.set_whole(0, b"a" * 32, 64)
    assert table.encode()[0][0] == 0x93  # three elements
    table.layers[0] = [(table.number(b"b" * 32), 5)]
    again = PageTable.decode(table.encode()[0])
    assert [again.ids[number] for number, _ in again.layers[0]] == [b"b" * 32]
    assert again.layers[0][0][1] == 5
    assert again.encode()[1] == [b"a" * 32, b"b" * 32]
