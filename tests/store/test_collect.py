"""Collecting: space comes back, and nothing that is needed goes with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.store import Store, open_store
from holdfast.store.retention import Last, Tagged

MB = 1_000_000


def test_the_dry_run_is_what_is_then_removed(store: Store, save, place, noise, look) -> None:
    for i in range(6):
        save(noise(2 * MB, i), tags={"golden": ""} if i == 1 else {})
        save(noise(100, i), subject="state/y")
    store.pin("state/x~4")
    before = look(place)
    planned = store.prune(Last(2) | Tagged(), "state/x", dry_run=True)
    assert look(place) == before
    assert planned.dry_run
    done = store.prune(Last(2) | Tagged(), "state/x")
    assert not done.dry_run
    assert done.removed == planned.removed
    assert done.kept == planned.kept
    assert done.reclaimed_bytes >= planned.reclaimed_bytes > 3 * MB
    assert len(store.list("state/x")) == 3
    assert len(store.list("state/y")) == 6


def test_what_small_checkpoints_leave_in_the_log_is_counted(store: Store, save, noise) -> None:
    for i in range(5):
        save(noise(1000, i))
    planned = store.prune(Last(2), dry_run=True)
    report = store.prune(Last(2))
    assert (report.reclaimed_bytes, report.pending_bytes) == (0, 0)
    assert 3 * 1000 < report.log_bytes == planned.log_bytes < 3 * 2000
    assert store.prune(Last(2)).log_bytes == 0  # of what it removed itself
    for i in range(5, 150):
        save(noise(1000, i))
    folded = store.prune(Last(2))
    assert folded.log_bytes == 0
    assert folded.reclaimed_bytes > 100 * 1000


@pytest.mark.parametrize("size", [50_000, 900_000, 2 * MB])
def test_reclaimed_bytes_are_true(store: Store, save, place: Path, noise, used, size: int) -> None:
    for i in range(12):
        save(noise(size, i))
    before = used(place)
    report = store.prune(Last(3))
    reclaimed = before - used(place)
    assert len(report.removed) == 9
    assert report.pending_bytes == 0
    assert abs(report.reclaimed_bytes - reclaimed) < 20_000
    if size > 100_000:
        assert reclaimed > 8 * size
    for i, checkpoint in enumerate(reversed(store.list())):
        assert store.read(checkpoint, "part") == noise(size, 9 + i)


def test_what_lives_is_moved_out_of_what_is_mostly_dead(store: Store, place, noise, used) -> None:
    with store.draft("session/x") as draft:
        draft.put("large", noise(5 * MB))
        draft.put("pages", noise(600_000, 1), "pages")
        draft.put("segment", noise(600_000, 2), "segment")
        draft.put("value", {"a": ["x" * 9000]}, "structure")
        first = draft.commit()
    with store.draft("session/x") as draft:
        for name in ("pages", "segment", "value"):
            draft.keep(name)
        second = draft.commit()
    store.delete(first)
    assert used(place) > 6 * MB
    told: list[tuple[int, int]] = []
    report = store.prune(progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 1.1 * MB
    assert report.reclaimed_bytes > 4.9 * MB
    assert used(place) < 1.5 * MB
    with open_store(place) as again:
        assert again.read(second, "pages") == noise(600_000, 1)
        assert again.value(second, "value") == {"a": ["x" * 9000]}
        with again.map(second, "segment", verify="first") as mapping:
            assert mapping.mapped_bytes > 500_000  # still aligned
            assert bytes(mapping.view) == noise(600_000, 2)
        assert again.verify(deep=True).ok


def test_a_long_log_is_folded(store: Store, save, place: Path, noise, used) -> None:
    made = [(save(noise(800_000, i)), i) for i in range(8)]
    for checkpoint, i in made[:3]:
        store.tag(checkpoint, f"tag{i}")
    store.pin(made[0][0])
    store.delete(made[5][0])
    store.rollback("state/x")
    history = store.history("state/x")
    store.prune()
    assert list(place.glob("log/*.snap"))
    assert sum(path.stat().st_size for path in place.glob("log/*")) < 100_000
    for again in (store, open_store(place)):
        assert again.resolve("tag2").id == made[2][0].id
        assert again.resolve(made[0][0]).pinned
        assert [m.after for m in again.history("state/x")][-3:] == [m.after for m in history][-3:]
        for checkpoint, i in made:
            if i != 5:
                assert again.read(checkpoint, "part") == noise(800_000, i)
        assert again.verify(deep=True).ok
    more = save(b"after the fold")
    assert store.prune().removed == ()
    assert open_store(place).head("state/x") == more


def test_a_prune_without_anything_to_do_does_nothing(store: Store, save, place, look) -> None:
    save()
    before = look(place)
    report = store.prune()
    assert (report.removed, report.reclaimed_bytes, report.pending_bytes) == ((), 0, 0)
    assert look(place) == before


def test_what_a_crash_left_is_swept_up(store: Store, save, place: Path, noise, used) -> None:
    kept = save(noise(2 * MB))
    draft = store.draft("state/x")
    draft.put("part", noise(3 * MB, 1))
    orphan = place / "packs" / f"{'ab' * 16}.pack"  # published, and its writer died
    orphan.write_bytes(noise(1000))
    assert store.prune().reclaimed_bytes == 1000
    assert not orphan.exists()
    assert store.read(draft.commit(), "part") == noise(3 * MB, 1)  # the living are left alone
    assert store.read(kept, "part") == noise(2 * MB)


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("save"), st.integers(0, 3), st.sampled_from([50, 40_000, 700_000, MB * 2])
        ),
        st.tuples(st.just("delete"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("prune"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("fork"), st.integers(0, 20), st.just(0)),
    ),
    min_size=4,
    max_size=14,
)


@given(steps=steps)
@settings(max_examples=25)
def test_whatever_goes_what_stays_is_whole(noise: Any, steps: list[Any]) -> None:
    store = open_store("memory://")
    model: dict[str, bytes] = {}
    for turn, (verb, number, size) in enumerate(steps):
        existing = [one.id for one in store.list()]
        if verb == "save":
            data = noise(size, number)
            with store.draft(f"state/{number}") as draft:
                draft.put("part", data, ("whole", "pages", "segment", "content")[number])
                model[draft.commit().id] = data
        elif verb == "prune":
            for gone in store.prune(Last(number)).removed:
                del model[gone.id]
        elif existing:
            chosen = existing[number % len(existing)]
            if verb == "delete":
                store.delete(chosen)
                del model[chosen]
            else:
                model[store.fork(chosen, f"fork-{turn}").id] = model[chosen]
        assert {one.id for one in store.list()} == model.keys()
    for checkpoint, data in model.items():
        assert store.read(checkpoint, "part") == data
    assert store.verify(deep=True).ok
