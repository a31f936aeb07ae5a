"""Hypothesis strategies for what goes into a store: bytes of every kind, and JSON-like values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from holdfast.model.checkpoint import Split

# Around what the store does differently: nothing, a page, a block, the log or a pack.
SIZES = (0, 1, 100, 4095, 4096, 4097, 70_000, 262_144, 262_145, 600_000, 1_500_000)
BYTE_SPLITS: tuple[Split, ...] = ("whole", "content", "pages", "segment")


@lru_cache(maxsize=64)
def noise(seed: int, size: int) -> bytes:
    """Bytes that do not compress, the same for the same seed."""
    return np.random.default_rng(seed).bytes(size)


def contents(largest: int = SIZES[-1]) -> st.SearchStrategy[bytes]:
    """Bytes of sizes that matter. A few seeds, so that contents share chunks; some pages of them
    changed or zero, so that they share only a part; some compress well."""
    sizes = st.sampled_from([size for size in SIZES if size <= largest])
    patches = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4)
    return st.builds(_patched, st.integers(0, 4), sizes, patches, st.booleans())


def _patched(seed: int, size: int, patches: list[tuple[int, int]], plain: bool) -> bytes:
    data = (
        bytearray(b"holdfast " * (size // 9 + 1))[:size] if plain else bytearray(noise(seed, size))
    )
    for page, value in patches:
        at = page * 4096 % max(size, 1)
        length = min(4096, size - at)
        data[at : at + length] = bytes([value]) * length
    return bytes(data)


def values(leaves: int = 40) -> st.SearchStrategy[Any]:
    """JSON-like values: what `structure` parts hold. NaN is left out, since it equals nothing."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-(2**70), 2**70)
        | st.floats(allow_nan=False)
        | st.text(max_size=40)
        | st.binary(max_size=40)
    )
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=12), inner, max_size=6)
        ),
        max_leaves=leaves,
    )


def part_names() -> st.SearchStrategy[str]:
    return st.sampled_from(("a", "memory/pages", "files/upper", "state"))
