"""Pages: whatever is saved comes back, and only what changed is stored."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from holdfast.model.errors import Corrupt
from holdfast.store import Store, open_store

PAGE = 4096
BLOCK = 64 * PAGE
SIZES = [
    *(0, 1, 4095, 4096, 4097, 10 * PAGE + 5, BLOCK - 1, BLOCK, BLOCK + 1),
    *(3 * BLOCK + 7 * PAGE + 123, 5 * BLOCK),
]
SPLITS = ["pages", "segment"]


def image(size: int, kind: str) -> bytes:
    random = np.random.default_rng(size)
    match kind:
        case "noise":
            return random.bytes(size)
        case "text":
            return b"".join(b"%08d some text\n" % i for i in range(size // 18 + 1))[:size]
        case "zeros":
            return bytes(size)
    data = bytearray(random.bytes(size))  # noise with zero pages in between, and a zero block
    for page in range(0, size // PAGE, 3):
        data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    data[BLOCK : 2 * BLOCK] = bytes(len(data[BLOCK : 2 * BLOCK]))
    return bytes(data)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("skew", [0, 16, 4095])
@pytest.mark.parametrize("kind", ["noise", "text", "zeros", "mixed"])
def test_every_size_comes_back(place: Path, kind: str, skew: int, split: Any) -> None:
    with open_store(place) as store:
        for size in SIZES:
            data = image(size, kind)
            with store.draft("session/x") as draft:  # on top of each other: growing
                draft.put("buffer", data, split, skew=skew)
                checkpoint = draft.commit()
            assert store.read(checkpoint, "buffer") == data
            assert store.show(checkpoint).parts[0].size == size
            with store.map(checkpoint, "buffer", verify="first") as mapping:
                assert bytes(mapping.view) == data
    with open_store(place, create=False) as store:
        assert store.verify(deep=True).ok
        for checkpoint, size in zip(reversed(store.list()), SIZES, strict=True):
            assert store.read(checkpoint, "buffer") == image(size, kind)


@pytest.mark.parametrize("split", SPLITS)
def test_shrinking_and_growing_again(store: Store, save, split: Any) -> None:
    data = image(3 * BLOCK + 5000, "mixed")
    saved = {}
    for size in (len(data), 2 * BLOCK + 1, BLOCK, 4097, 0, 17, BLOCK + 4096, len(data)):
        saved[save(data[:size], split).id] = data[:size]
    for checkpoint, expected in saved.items():
        assert store.read(checkpoint, "part") == expected
    assert store.verify(deep=True).ok


def test_cutting_zeros_off_the_end_is_a_change(store: Store, save) -> None:
    data = b"x" * 5000 + bytes(3192)
    for size in (8192, 8000, 5000, 4096):
        assert store.read(save(data[:size], "pages"), "part") == data[:size]


def test_zero_pages_are_holes(save, noise) -> None:
    assert save(bytes(50 * BLOCK), "pages").stored_bytes < 4096
    sparse = bytearray(50 * BLOCK)
    sparse[30 * BLOCK : 30 * BLOCK + PAGE] = noise(PAGE)
    assert save(bytes(sparse), "segment", subject="state/y").stored_bytes < 2 * BLOCK


def test_pages_that_became_zero_store_nothing(store: Store, save, noise) -> None:
    data = bytearray(noise(4 * BLOCK))
    save(data, "pages")
    data[5 * PAGE : 9 * PAGE] = bytes(4 * PAGE)
    data[2 * BLOCK : 3 * BLOCK] = bytes(BLOCK)
    second = save(data, "pages")
    assert store.read(second, "part") == data
    assert second.stored_bytes < PAGE


def test_a_block_that_was_zero_stores_the_pages_it_got(store: Store, save, noise) -> None:
    data = bytearray(3 * BLOCK)
    save(data, "pages")
    for page in (3, 4, 70):
        data[page * PAGE : (page + 1) * PAGE] = noise(PAGE, page)
    second = save(data, "pages")
    assert store.read(second, "part") == data
    assert second.stored_bytes < 4 * PAGE


def test_a_damaged_copy_of_a_chunk_is_made_up_for_by_another(
    store: Store, save, noise, place: Path
) -> None:
    data = bytearray(noise(6 * BLOCK))
    with store.draft("state/x") as one, store.draft("state/y") as other:
        for draft in (one, other):  # neither knows of the other: each stores it
            draft.put("part", data, "pages")
        one.commit()
        other.commit()
    packs = [*place.glob("packs/*.pack")]
    assert len(packs) == 2
    data[5 * PAGE] ^= 1
    child = save(data, "pages")  # its first block is made of pages of two chunks
    block = bytes(data[8 * PAGE : 9 * PAGE])
    for damaged in packs:
        _flip(damaged, block)
        assert store.read(child, "part") == data
        _flip(damaged, block, back=True)
    for damaged in packs:
        _flip(damaged, block)
    with pytest.raises(Corrupt, match="is damaged"):
        store.read(child, "part")


def _flip(pack: Path, where: bytes, *, back: bool = False) -> None:
    """Damage a page that a pack holds raw, or mend it again."""
    data = pack.read_bytes()
    flipped = bytes([where[0] ^ 1]) + where[1:]
    wanted, instead = (flipped, where) if back else (where, flipped)
    assert data.count(wanted) == 1
    pack.write_bytes(data.replace(wanted, instead))


def test_what_did_not_change_is_not_stored(save, noise) -> None:
    data = noise(20 * BLOCK)
    save(data, "pages")
    assert save(data, "pages").stored_bytes == 0
    assert save(data, "pages", subject="session/other").stored_bytes == 0


def test_compressible_pages_are_compressed_and_noise_is_not(save) -> None:
    size = 8 * BLOCK
    assert save(image(size, "text"), "pages").stored_bytes < size / 2
    noisy = save(image(size, "noise"), "pages", subject="state/y").stored_bytes
    assert size <= noisy < size * 1.01


@pytest.mark.parametrize("split", SPLITS)
def test_neighbours_in_memory_are_never_stored(place: Path, save, store, look, split: Any) -> None:
    secret = b"a neighbour's secret, 32 bytes.."
    memory = np.frombuffer(bytearray(secret * (8 * BLOCK // 32)), dtype=np.uint8)
    start = 3 * PAGE + 16  # as numpy's data lies in memory
    mine = memory[start : start + 5 * BLOCK + 777]
    mine[:] = np.random.default_rng(1).integers(0, 256, len(mine), dtype=np.uint8)
    for change in (None, 100, 5 * BLOCK + 700):
        if change is not None:
            mine[change] ^= 1
        checkpoint = save(mine, split, skew=start % PAGE)
        assert store.read(checkpoint, "part") == mine.tobytes()
    assert all(secret[:8] not in data for data in look(place).values())
    with store.map(checkpoint, "part") as mapping:
        region = bytes(mapping._region)
    assert region == bytes(16) + mine.tobytes() + bytes(-(16 + len(mine)) % PAGE)


def scatter(data: bytearray, random: np.random.Generator, count: int) -> None:
    for page in random.choice(len(data) // PAGE, count, replace=False):
        data[page * PAGE : (page + 1) * PAGE] = random.bytes(PAGE)


def test_twenty_steps_write_twenty_times_one_step(store: Store, save, place, used) -> None:
    size = 64 * 2**20
    changed = size // PAGE // 100
    random = np.random.default_rng(7)
    data = bytearray(random.bytes(size))
    save(data, "pages")
    before = used(place)
    steps = []
    for _ in range(20):
        scatter(data, random, changed)
        steps.append((save(data, "pages"), bytes(data[:PAGE]), hash(bytes(data))))
    pages = 20 * changed * PAGE
    stored = [step.stored_bytes for step, _, _ in steps]
    assert sum(stored) <= 1.1 * pages
    assert used(place) - before <= 1.1 * pages + 20 * 16_384
    assert max(stored[10:]) < 2 * stored[0]  # a step does not grow with those before it
    # Each is read by itself: with the first image and every other step gone.
    store.delete(store.list()[-1], *(step for step, _, _ in steps[::2]))
    store.prune()
    for step, beginning, total in steps[1::6]:
        found = store.read(step, "part")
        assert found[:PAGE] == beginning
        assert hash(found) == total
    assert used(place) < size + 1.2 * pages


@given(order=st.permutations(range(6)), seed=st.integers(0, 100), split=st.sampled_from(SPLITS))
@settings(max_examples=12)
def test_checkpoints_go_in_any_order(order: list[int], seed: int, split: Any) -> None:
    random = np.random.default_rng(seed)
    data = bytearray(random.bytes(6 * BLOCK + 100))
    with open_store("memory://") as store:
        saved = []
        for _ in range(6):
            with store.draft("session/x") as draft:
                draft.put("part", data, split)
                saved.append((draft.commit(), bytes(data)))
            scatter(data, random, 12)
        for gone in order[:-1]:
            store.delete(saved[gone][0])
            store.prune()
            for i in order[order.index(gone) + 1 :]:
                assert store.read(saved[i][0], "part") == saved[i][1]
        assert store.verify(deep=True).ok


step = st.tuples(
    st.integers(0, 3 * BLOCK),  # new size
    st.lists(st.tuples(st.integers(0, 3 * BLOCK), st.integers(0, 255)), max_size=5),
)


@given(
    steps=st.lists(step, min_size=1, max_size=6),
    split=st.sampled_from(["pages", "segment", "content", "whole"]),
    skew=st.sampled_from([0, 16, 4000]),
    start=st.sampled_from(["noise", "text", "zeros", "mixed"]),
)
@settings(max_examples=40)
def test_any_sequence_of_steps_comes_back(
    steps: list[tuple[int, list[tuple[int, int]]]], split: Any, skew: int, start: str
) -> None:
    data = bytearray(image(3 * BLOCK, start))
    skew = skew if split in SPLITS else 0
    with open_store("memory://") as store:
        saved = []
        for size, edits in steps:
            for at, value in edits:
                data[at : at + 1] = bytes([value])
            with store.draft("session/x") as draft:
                draft.put("part", bytes(data[:size]), split, skew=skew)
                saved.append((draft.commit(), bytes(data[:size])))
        for checkpoint, expected in saved:
            assert store.read(checkpoint, "part") == expected
        for (a, before), (b, after) in pairwise(saved):
            assert store.diff(a, b).same == (before == after)
        assert store.verify(deep=True).ok


# XXH3's public default secret, as far as the first stripes of a page meet it.
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b532ea371644897a20df94e3819ef46a9deacd8a8"
)


def colliding_pages() -> tuple[bytes, bytes]:
    """Two pages with the same unseeded XXH3: where the low half of a lane equals the secret's, the
    product is zero whatever the high half is, and what is added in one stripe is taken off in
    another."""
    pages = []
    for shift in (0, 0x1234):
        page = bytearray(PAGE)
        for stripe, sign in ((0, 1), (1, -1)):
            low = struct.unpack_from("<I", SECRET, stripe * 8)[0]
            lane = low | (0x41414141 + sign * shift) << 32
            struct.pack_into("<Q", page, stripe * 64, lane)
        pages.append(bytes(page))
    return pages[0], pages[1]


@pytest.mark.parametrize("split", ["pages", "segment", "content", "whole", "structure"])
def test_a_forged_collision_does_not_hide_a_change(store: Store, save, noise, split: Any) -> None:
    first, second = colliding_pages()
    assert first != second
    assert xxh3_64_intdigest(first) == xxh3_64_intdigest(second)
    around = noise(BLOCK)
    before, after = (around + page + around for page in (first, second))
    if split == "structure":
        before, after = {"a": before}, {"a": after}
    a, b = save(before, split), save(after, split)
    reads = store.value if split == "structure" else store.read
    assert reads(a, "part") == before
    assert reads(b, "part") == after
    assert not store.diff(a, b).same


def test_a_parent_whose_bytes_are_gone_is_no_reason_to_lose_the_child(
    store: Store, save, place: Path, noise
) -> None:
    data = bytearray(noise(12 * BLOCK))
    save(data, "pages")
    for pack in place.glob("packs/*.pack"):
        pack.unlink()
    data[PAGE * 40] ^= 1
    with open_store(place) as again:
        second = save(data, "pages", into=again)
        assert again.read(second, "part") == data


@pytest.mark.parametrize("split", SPLITS)
def test_what_a_damaged_parent_has_is_not_referred_to_where_the_child_brings_it(
    store: Store, save, place: Path, noise, split: Any
) -> None:
    """A page that happens to equal the damaged bytes is no less new, and its neighbours in the
    same block cannot be read from the parent either."""
    data = bytearray(noise(12 * BLOCK))
    save(data, split)
    (pack,) = place.glob("packs/*.pack")
    stored = bytearray(pack.read_bytes())
    at = stored.find(data[5 * BLOCK : 5 * BLOCK + 64])
    assert at > 0
    stored[at] ^= 1
    pack.write_bytes(stored)
    data[5 * BLOCK] ^= 1  # what is on the disk now
    data[5 * BLOCK + 20 * PAGE] ^= 1
    second = save(data, split)
    with open_store(place) as again:
        assert again.read(second, "part") == data
