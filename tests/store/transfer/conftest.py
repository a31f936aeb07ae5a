"""What the tests of transfer share: a store with everything in it, and strangers to carry it to."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.model.checkpoint import Checkpoint
from holdfast.store import Store, open_store
from holdfast.store.keys import Key, Keyring

PARTS = ("content", "empty", "memory", "segment", "value", "whole")
Archive = Callable[..., bytes]


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "source") as store:
        yield store


@pytest.fixture(params=["directory", "memory"])
def stranger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store with another key, on one backend and on the other."""
    where = "memory://" if request.param == "memory" else tmp_path / "stranger"
    with open_store(where, keyring=Keyring(Key.generate())) as store:
        yield store


@pytest.fixture
def line(source: Store, noise: Callable[..., bytes]) -> list[Checkpoint]:
    """Four checkpoints in a line, with a part of every kind; few pages change from one to next."""
    image = bytearray(noise(1_500_000))
    made = []
    for step in range(4):
        with source.draft(
            "session/x", reason=f"step {step}", stage="cleaning", tags={"score": str(step)}
        ) as draft:
            draft.put("memory", bytes(image), split="pages", skew=16)
            draft.put("segment", bytes(image[:700_000]), split="segment")
            draft.put("whole", bytes(image[:1_100_000]))
            draft.put("content", bytes(image[:300_000]), split="content")
            draft.put("empty", b"", split="pages")
            value = {"step": step, "long": "text " * 60_000, "rows": [{"n": n} for n in range(900)]}
            draft.put("value", value, split="structure")
            made.append(draft.commit())
        for at in range(0, len(image), 300_000):
            image[at] = step
    return made


@pytest.fixture
def archive(source: Store) -> Archive:
    """An archive of a checkpoint, as bytes."""

    def make(reference: str | Checkpoint = "session/x", *, ancestors: bool = False) -> bytes:
        stream = io.BytesIO()
        source.export(reference, stream, ancestors=ancestors)
        return stream.getvalue()

    return make
