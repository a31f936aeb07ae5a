"""Prints: what changed is found without reading what was there, and nothing depends on them."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store.parts.test_pagewriter import colliding_pages

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.home import home
from holdfast.store import Store, open_store
from holdfast.store.keys import Key, import_key, load_keyring

PAGE = 4096
BLOCK = 64 * PAGE
# What a checkpoint takes besides its pages: maps, and the entry of the log.
FRAME = 6 * PAGE


@pytest.fixture(params=["plain", "encrypted"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def text(blocks: int) -> bytearray:
    """Bytes that zstd shrinks, all of them different."""
    numbers = np.arange(blocks * BLOCK // 16, dtype=np.uint64)
    return bytearray(np.repeat(numbers * np.uint64(0x9E3779B97F4A7C15), 2).tobytes())


def put(store: Store, data: Any, parent: Checkpoint | None = None) -> Checkpoint:
    about = {} if parent is None else {"parent": parent}
    with store.draft("container/x", **about) as draft:
        draft.put("memory", bytes(data), "pages")
        return draft.commit()


def prints() -> list[Path]:
    return sorted(path for path in home().glob("prints/*/*") if path.is_file())


def damage(place: Path) -> None:
    """Make most of what packs hold unreadable, but leave them their maps and tables. Which blocks
    that hits is not known: the threads that compress them take turns as they like."""
    for pack in place.glob("packs/*.pack"):
        data = pack.read_bytes()
        middle = bytes(byte ^ 0xFF for byte in data[4096 : len(data) * 3 // 4])
        pack.write_bytes(data[:4096] + middle + data[4096 + len(middle) :])


def test_the_next_process_need_not_read_what_was_there(place: Path) -> None:
    data = text(24)
    with open_store(place) as store:
        put(store, data)
    assert [path.stat().st_mode & 0o777 for path in prints()] == [0o600]
    damage(place)
    data[7 * BLOCK + 5 * PAGE] ^= 1
    data[20 * BLOCK] ^= 1
    with open_store(place) as store:
        told = put(store, data)
        assert told.stored_bytes < 2 * PAGE + FRAME
    shutil.rmtree(home() / "prints")
    for block in range(24):
        data[block * BLOCK + PAGE] ^= 1
    with open_store(place) as store:  # who has to read them finds out, and stores whole blocks
        assert put(store, data).stored_bytes > 24 * PAGE + FRAME + 4 * BLOCK


def test_every_version_comes_back(place: Path) -> None:
    rng = np.random.default_rng(1)
    data, saved = text(24), []
    for step in range(6):
        with open_store(place) as store:
            made = put(store, data)
            saved.append((made, bytes(data)))
            assert step == 0 or made.stored_bytes < 40 * PAGE + 4 * FRAME
        for page in rng.choice(len(data) // PAGE, 40, replace=False):
            data[page * PAGE + int(rng.integers(PAGE))] ^= 0x55
    with open_store(place) as store:
        for made, expected in saved:
            assert store.read(made, "memory") == expected
        assert store.verify(deep=True).ok


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(17 * BLOCK, 19 * BLOCK),  # bytes
            st.sets(st.integers(0, 19 * 64 - 1), max_size=60),  # pages that change
            st.sampled_from(["a bit", "zeros", "noise", "all over"]),
            st.integers(0, 5),  # which earlier one is the parent
        ),
        min_size=2,
        max_size=5,
    )
)
def test_any_sequence_of_steps_comes_back(tmp_path_factory: Any, steps: list[Any]) -> None:
    place = tmp_path_factory.mktemp("steps") / "store"
    data, rng = text(19), np.random.default_rng(3)
    saved: list[tuple[Checkpoint, bytes]] = []
    for size, pages, how, parent in steps:
        for page in pages:
            at = page * PAGE
            if how == "a bit":
                data[at + 7] ^= 2
            elif how == "all over":
                data[at : at + PAGE : 512] = bytes(8)
            else:
                data[at : at + PAGE] = bytes(PAGE) if how == "zeros" else rng.bytes(PAGE)
        with open_store(place) as store:
            before = saved[parent % len(saved)][0] if saved else None
            saved.append((put(store, data[:size], before), bytes(data[:size])))
    with open_store(place) as store:
        for made, expected in saved:
            assert store.read(made, "memory") == expected
        assert store.verify(deep=True).ok
    shutil.rmtree(place)


def test_the_parent_need_not_be_the_last_one(place: Path) -> None:
    first = text(24)
    second, third = first.copy(), first.copy()
    second[3 * BLOCK] ^= 1
    third[5 * BLOCK] ^= 1
    third[3 * BLOCK + PAGE] ^= 1  # a block of which the last prints are not this parent's
    with open_store(place) as store:
        parent = put(store, first)
        put(store, second, parent)
        made = put(store, third, parent)
        assert made.stored_bytes < 2 * PAGE + FRAME
        assert store.read(made, "memory") == third
        assert store.read(parent, "memory") == first


def test_many_are_made_from_one_without_reading_it(place: Path) -> None:
    first = text(24)
    with open_store(place) as store:
        parent = put(store, first)
    for number in range(3):
        with open_store(place) as store:
            second = first.copy()
            second[3 * BLOCK + number * PAGE] ^= 1
            second[number * BLOCK] ^= 1
            made = put(store, second, parent)
            assert made.stored_bytes < 2 * PAGE + FRAME
            assert len(prints()) == 2
            if number:  # of these, no byte can be read
                continue
            assert store.read(made, "memory") == second
        damage(place)


def test_pages_that_fill_zeros_are_told_the_next_time(place: Path) -> None:
    data = bytearray(24 * BLOCK)
    with open_store(place) as store:
        put(store, data)
        data[7 * BLOCK : 7 * BLOCK + 9 * PAGE] = text(1)[: 9 * PAGE]
        data[20 * BLOCK : 21 * BLOCK] = text(1)  # most of a block
        put(store, data)
    damage(place)
    data[7 * BLOCK + PAGE] ^= 1  # one that was filled,
    data[7 * BLOCK + 40 * PAGE] ^= 1  # one that was still zero,
    data[20 * BLOCK] ^= 1
    with open_store(place) as store:
        assert put(store, data).stored_bytes < 3 * PAGE + FRAME


def test_a_forged_collision_does_not_hide_a_change(place: Path) -> None:
    one, other = colliding_pages()
    data = text(24)
    with open_store(place) as store:
        for page in (one, other, one):
            data[9 * BLOCK : 9 * BLOCK + PAGE] = page
            assert store.read(put(store, data), "memory") == data


@pytest.mark.parametrize("what", ["flip", "gone", "folder", "other key", "of another part"])
def test_without_good_prints_bytes_are_compared(
    place: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = text(24)
    with open_store(place) as store:
        put(store, data)
    (path,) = prints()
    if what == "flip":
        found = path.read_bytes()
        path.write_bytes(found[:5000] + bytes([found[5000] ^ 1]) + found[5001:])
    elif what == "gone":
        path.unlink()
    elif what == "folder":
        shutil.rmtree(home() / "prints")
        (home() / "prints").write_text("in the way")
    elif what == "other key":
        # Its holder may read the store, and has prints of its own.
        old = load_keyring().signing
        assert old is not None
        import_key(old)
        monkeypatch.setenv("HOLDFAST_KEY", Key.generate().to_text())
    else:
        with open_store(place) as store, store.draft("container/y") as draft:
            draft.put("memory", bytes(text(20)[::-1]), "pages")
            draft.commit()
        (other,) = (each for each in prints() if each != path)
        path.write_bytes(other.read_bytes())
    data[11 * BLOCK + 9 * PAGE] ^= 1
    with open_store(place) as store:
        made = put(store, data)
        assert made.stored_bytes < PAGE + FRAME
        assert store.read(made, "memory") == data


def test_none_outlive_their_checkpoint(place: Path) -> None:
    with open_store(place) as store:
        made = put(store, text(24))
        assert len(prints()) == 1
        store.delete(made)
        assert prints() == []


def test_prints_tell_nothing(place: Path) -> None:
    """Whoever has them cannot find out whether a page is one that he knows."""
    data = text(24)
    with open_store(place) as store:
        put(store, data)
    found = b"".join(path.read_bytes() for path in prints())
    assert bytes(data[:16]) not in found
    # 1 KiB for a block, and nothing that repeats: two equal pages are of different blocks.
    assert len(zlib.compress(found)) > 24 * 1024


def test_what_needs_none_has_none(place: Path) -> None:
    with open_store(place) as store:
        put(store, text(12))  # compared as quickly
        with store.draft("session/x") as draft:
            draft.put("buffers/0", bytes(text(24)), "segment")  # is there as it is
            draft.commit()
    with open_store("memory://") as memory:
        put(memory, text(24))
    assert prints() == []


def test_a_part_may_be_put_and_not_be_committed(place: Path) -> None:
    data = text(24)
    with open_store(place) as store:
        put(store, data)
        kept = {path.name: path.read_bytes() for path in prints()}
        with store.draft("container/x") as draft:
            draft.put("memory", bytes(data[::-1]), "pages")
        assert {path.name: path.read_bytes() for path in prints()} == kept
        data[0] ^= 1
        assert put(store, data).stored_bytes < PAGE + FRAME


def test_what_others_left_on_the_shelf(place: Path) -> None:
    """Drafts of those who died while they wrote are removed one day; what is no name is nothing."""
    with open_store(place) as store:
        put(store, text(24))
        [kept] = prints()
        old, new, other = (
            kept.with_name(name) for name in (".old", ".new", "z" * 32 + "-" + "z" * 32)
        )
        for path in (old, new, other):
            path.write_bytes(b"x")
        os.utime(old, (1, 1))
        first = put(store, text(25))
        put(store, text(26))
        store.delete(first)
    assert (old.exists(), new.exists(), other.exists()) == (False, True, True)
