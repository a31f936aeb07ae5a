"""What the tests of the store share: stores in real directories, and ways to look into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.model.checkpoint import Checkpoint, Split
from holdfast.store import Store, open_store

Save = Callable[..., Checkpoint]
Noise = Callable[..., bytes]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the store of a test is."""
    return tmp_path / "store"


@pytest.fixture
def store(place: Path) -> Iterator[Store]:
    with open_store(place) as opened:
        yield opened


@pytest.fixture
def save(store: Store) -> Save:
    """Commit a checkpoint with one part."""

    def commit(
        source: Any = b"content",
        split: Split = "whole",
        *,
        subject: str = "state/x",
        part: str = "part",
        into: Store | None = None,
        skew: int = 0,
        **about: Any,
    ) -> Checkpoint:
        with (into or store).draft(subject, **about) as draft:
            draft.put(part, source, split, skew=skew)
            return draft.commit()

    return commit


@pytest.fixture(scope="session")
def noise() -> Noise:
    """Bytes that no compressor shrinks, the same for the same seed."""

    def make(size: int, seed: int = 0) -> bytes:
        return np.random.default_rng(seed).bytes(size)

    return make


def files(place: Path) -> dict[str, bytes]:
    """Every file of a store and what is in it."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def look() -> Callable[[Path], dict[str, bytes]]:
    return files


@pytest.fixture
def used() -> Callable[[Path], int]:
    """How many bytes a store's files have."""
    return lambda place: sum(len(data) for data in files(place).values())
