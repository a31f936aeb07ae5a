"""Heads that move together: by one entry, so all of them or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, LeaseLost, NotFound, Owned
from holdfast.store.collect import _Collector
from holdfast.store.doubts import Doubts
from holdfast.store.opening import open_store
from holdfast.store.retention import Last
from holdfast.store.store import Store

NAMES = ("state/plan", "session/work", "bundle/all")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as made:
        yield made


def save(store: Store, subject: str, value: object, *, aside: bool = False) -> Checkpoint:
    with store.draft(subject, aside=aside) as draft:
        draft.put("value", value, split="structure")
        return draft.commit()


def heads(store: Store) -> list[str | None]:
    return [head.id if (head := store.head(name)) else None for name in NAMES]


def test_what_is_made_aside_is_there_and_no_head_moves(store: Store) -> None:
    first = save(store, "state/plan", 1)
    beside = save(store, "state/plan", 2, aside=True)
    assert store.head("state/plan") == first
    assert beside.parents == (first.id,)
    assert store.value(beside, "value") == 2
    assert [one.id for one in store.list("state/plan")] == [beside.id, first.id]
    assert [move.verb for move in store.history("state/plan")] == ["checkpoint"]
    assert save(store, "state/plan", 3).parents == (first.id,)
    assert store.verify(deep=True).ok


def test_all_heads_move_by_one_entry(store: Store, tmp_path: Path) -> None:
    before = [save(store, name, 1).id for name in NAMES[:2]]
    made = [save(store, name, 2, aside=True) for name in NAMES]
    assert heads(store) == [*before, None]
    assert store.move_heads(*made, verb="checkpoint") == tuple(made)
    for each in (store, open_store(tmp_path / "store", create=False)):
        assert heads(each) == [one.id for one in made]
        moves = [each.history(name)[-1] for name in NAMES]
        assert len({move.sequence for move in moves}) == 1
        assert [move.before for move in moves] == [*before, None]
        assert {move.verb for move in moves} == {"checkpoint"}
    store.move_heads(*before)
    assert heads(store)[:2] == before
    store.undo(NAMES[0])
    assert heads(store)[0] == made[0].id


def test_none_moves_when_one_cannot(store: Store, tmp_path: Path) -> None:
    before = [save(store, name, 1).id for name in NAMES]
    made = [save(store, name, 2, aside=True) for name in NAMES]
    with open_store(tmp_path / "store") as other:
        lease = other.lease("session/work")
        with pytest.raises(Owned):
            store.move_heads(*made)
        assert heads(store) == before
        other.move_heads(*made, leases=[lease])
        assert heads(store) == [one.id for one in made]
        lease.release()
        with pytest.raises(LeaseLost):
            other.move_heads(*before, leases=[lease])
    store.delete(made[0])
    with pytest.raises(NotFound):
        store.move_heads(*made)
    with pytest.raises(BadInput):
        store.move_heads()
    with pytest.raises(BadInput):
        store.move_heads(made[1], before[1])
    assert heads(store)[1:] == [one.id for one in made[1:]]


def test_a_folded_log_remembers(store: Store, tmp_path: Path) -> None:
    made = [save(store, name, 2, aside=True) for name in NAMES]
    store.move_heads(*made, verb="checkpoint")
    store._ledger.backend.seal()
    _Collector(store._ledger, Doubts())._snapshot()
    with open_store(tmp_path / "store", create=False) as later:
        assert heads(later) == [one.id for one in made]
        assert later.verify(deep=True).ok
        later.prune(Last(1))
        assert heads(later) == [one.id for one in made]


def test_what_waited_in_vain_goes_like_any_other(store: Store) -> None:
    save(store, "state/plan", 1)
    left = save(store, "state/plan", 2, aside=True)
    kept = save(store, "state/plan", 3)
    report = store.prune(Last(1))
    assert left.id in {one.id for one in report.removed}
    assert store.head("state/plan") == kept
