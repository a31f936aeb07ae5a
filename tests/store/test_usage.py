"""Usage: each chunk counts once, and counting takes little memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import pytest

from holdfast.store import Store
from holdfast.store.usage import unique


@pytest.mark.parametrize("few", [0, 1_000_000])
def test_each_chunk_counts_once(few: int) -> None:
    chance = random.Random(1)
    chunks = {chance.randbytes(32): chance.randrange(2**32) for _ in range(5000)}
    rows = [*chunks.items(), *list(chunks.items())[::3]]
    chance.shuffle(rows)
    assert unique(iter(rows), few) == (5000, sum(chunks.values()))
    assert unique(iter(()), few) == (0, 0)


def test_counting_takes_little_memory() -> None:
    def rows() -> Iterator[tuple[bytes, int]]:
        chance = random.Random(2)
        for _ in range(300_000):
            yield chance.randbytes(32), 4096

    tracemalloc.start()
    try:
        assert unique(rows()) == (300_000, 300_000 * 4096)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300_000 * 110


def test_a_store_counts_shared_chunks_once(store: Store, save, noise) -> None:
    save(noise(2_000_000), "pages")
    save(noise(2_000_000), "pages", subject="state/y")
    found = store.usage()
    assert found.content_bytes == 4_000_000
    assert 2_000_000 <= found.unique_bytes < 2_100_000
    assert found.dedup_ratio == pytest.approx(2, abs=0.1)
