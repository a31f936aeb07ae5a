"""`holdfast bundle`: heads of subjects that nobody runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run

from holdfast.store import Store, open_store
from holdfast.store.retention import Last

NAMES = ("state/plan", "state/notes")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    made = open_store(tmp_path / "store")
    for name in NAMES:
        save(made, name, 1)
    return made


def save(store: Store, name: str, value: int) -> None:
    with store.draft(name, reason=f"value {value}") as draft:
        draft.put("value", value, split="structure")
        draft.commit()


def values(store: Store) -> list[object]:
    store.refresh()
    return [store.value(name, "value") for name in NAMES]


def test_heads_are_bound_and_go_back_at_once(run: Run, store: Store) -> None:
    made = run("bundle", "make", "both", *NAMES, "--reason", "ones", "--json")
    assert made.code == 0, made.err
    assert made.json["checkpoint"]["subject"] == "bundle/both"
    assert made.json["checkpoint"]["reason"] == "ones"
    for name in NAMES:
        save(store, name, 2)
    shown = run("bundle", "show", "bundle/both", "--json").json["members"]
    assert [each["subject"] for each in shown] == list(NAMES)
    assert all(each["kept"] for each in shown)
    moved = run("bundle", "restore", "bundle/both", "--json").json["checkpoints"]
    assert [each["subject"] for each in moved] == [*NAMES, "bundle/both"]
    assert values(store) == [1, 1]
    assert run("verify", "--deep").code == 0


def test_members_that_were_pruned_come_from_the_bundle(run: Run, store: Store) -> None:
    run("bundle", "make", "both", *NAMES)
    for value in (2, 3):
        for name in NAMES:
            save(store, name, value)
    for name in NAMES:
        store.prune(Last(1), subject=name)
    assert "kept by the bundle" in run("bundle", "show", "bundle/both").out
    assert run("bundle", "restore", "bundle/both").code == 0
    assert values(store) == [1, 1]


def test_none_moves_when_one_is_run_by_somebody(run: Run, store: Store) -> None:
    run("bundle", "make", "both", *NAMES)
    for name in NAMES:
        save(store, name, 2)
    with store.lease("state/notes"):
        for words in (("restore", "bundle/both"), ("make", "both", *NAMES)):
            refused = run("bundle", *words)
            assert refused.code != 0
            assert "state/notes is in use by" in refused.err
        assert "state/notes" in refused.err
        assert values(store) == [2, 2]


def test_what_cannot_be_bound_is_said(run: Run, store: Store) -> None:
    assert "no subject state/none" in run("bundle", "make", "both", "state/none").err
    assert "each once" in run("bundle", "make", "both", NAMES[0], NAMES[0]).err
    assert run("bundle", "make", "both").code == 2
    for verb in ("show", "restore"):
        assert "state/plan is no bundle" in run("bundle", verb, "state/plan").err
    run("bundle", "make", "both", *NAMES)
    assert "could be bound" in run("bundle", "make", "all", "bundle/both").err
