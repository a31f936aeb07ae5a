"""What the tests of the store share: stores in real directories, and ways to look into them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.model.checkpoint import Checkpoint, Split
from holdfast.store import Store, open_store
from holdfast.store.backends.local.holds import living
from holdfast.store.backends.local.runway import AHEAD
from holdfast.store.slots import new_key_file

Save = Callable[..., Checkpoint]
Noise = Callable[..., bytes]


@pytest.fixture
def kind() -> str:
    """What the store of a test is: `plain` or `encrypted`. Modules whose tests hold for both say so
    by a fixture of their own; HOLDFAST_TEST_STORE says it for all of them."""
    return os.environ.get("HOLDFAST_TEST_STORE", "plain")


@pytest.fixture
def place(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the store of a test is. Whoever opens an encrypted one finds its key."""
    place = tmp_path / "store"
    if kind == "encrypted":
        key = tmp_path / "encryption.key"
        new_key_file(key)
        monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEY_FILE", str(key))
        open_store(place, encrypt=True).close()
    return place


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
    """Every file of a store and what is in it; a hold that is over is no file of it."""
    with suppress(OSError):  # who may only read makes none
        living(place / "holds")
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
    """How many bytes a store's files have, but for zeros that only lie ahead of the log's end."""

    def count(place: Path) -> int:
        found = files(place)
        logs = [name for name in found if name.endswith(".log")]
        ahead = {name: len(found[name]) - len(found[name].rstrip(b"\0")) for name in logs}
        assert all(zeros <= AHEAD for zeros in ahead.values()), ahead
        return sum(map(len, found.values())) - sum(ahead.values())

    return count
