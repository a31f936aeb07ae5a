"""Recall: values that were written last are written and read from memory, and never wrongly."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import NotFound
from holdfast.store import Store, open_store
from holdfast.store.retention import Last


def state(step: int, rows: int = 20) -> dict[str, Any]:
    texts = [random.Random(i).randbytes(5000).hex() for i in range(rows)]
    return {"step": step, "rows": texts, "last": f"{step} " * 999}


def put(store: Store, value: Any, subject: str = "state/x") -> Any:
    with store.draft(subject) as draft:
        draft.put("state", value, split="structure")
        return draft.commit()


def test_written_again_it_stores_what_changed(store: Store, place: Path) -> None:
    first = put(store, state(0))
    second = put(store, state(1))
    assert first.stored_bytes > 20 * second.stored_bytes
    assert store.value(first, "state") == state(0)
    assert store.value(second, "state") == state(1)
    with open_store(place) as other:
        assert other.value(second, "state") == state(1)
        assert other.verify(deep=True).ok


def test_a_value_read_is_the_readers_own(store: Store) -> None:
    made = put(store, state(0))
    store.value(made, "state")["rows"].clear()
    assert store.value(made, "state") == state(0)


def test_what_is_gone_is_not_remembered(store: Store, place: Path) -> None:
    made = put(store, state(0))
    with open_store(place) as other:
        other.delete(made)
    with pytest.raises(NotFound):
        store.value(made, "state")


@pytest.mark.parametrize("rows", [20, 400], ids=["in the log", "in packs"])
def test_chunks_that_a_collector_moved_or_removed_are_stored_anew(
    store: Store, place: Path, rows: int
) -> None:
    """Somebody else drops the checkpoint and collects: what we remember is gone."""
    put(store, state(0, rows))
    with open_store(place) as other:
        put(other, {"other": 1}, "state/y")
        for one in other.list("state/x"):
            other.delete(one)
        for _ in range(3):  # condemned, then deleted once no hold is older
            other.prune(Last(1))
    made = put(store, state(1, rows))
    with open_store(place) as reader:
        assert reader.value(made, "state") == state(1, rows)
        assert reader.verify(deep=True).ok
        for _ in range(3):
            reader.prune(Last(1))
    put(store, state(2, rows))
    with open_store(place) as reader:
        assert reader.value("state/x", "state") == state(2, rows)
        assert reader.verify(deep=True).ok


@pytest.mark.parametrize("rows", [20, 400], ids=["in the log", "in packs"])
def test_a_collection_between_put_and_commit(store: Store, place: Path, rows: int) -> None:
    put(store, state(0, rows))
    with store.draft("state/x") as draft:
        draft.put("state", state(1, rows), split="structure")
        with open_store(place) as other:
            for one in other.list("state/x"):
                other.delete(one)
            for _ in range(3):
                other.prune(Last(1))
        made = draft.commit()
    with open_store(place) as reader:
        for _ in range(3):  # now nobody's hold keeps what was condemned
            reader.prune(Last(1))
        assert reader.value(made, "state") == state(1, rows)
        assert reader.verify(deep=True).ok


def test_a_draft_that_came_to_nothing_leaves_no_memory(store: Store, place: Path) -> None:
    put(store, state(0))
    with store.draft("state/x") as draft:
        draft.put("state", state(1), split="structure")
    made = put(store, state(1))
    with open_store(place) as reader:
        assert reader.value(made, "state") == state(1)
