"""The verbs on states that are kept as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.state import StateManager
from holdfast.store import open_store


@pytest.fixture
def manager(tmp_path: Path) -> StateManager:
    manager = StateManager("job", directory=tmp_path / "states")
    for step in range(3):
        manager.set_state("step", step)
        manager.set_state("rows", {"n": [step]})
        manager.checkpoint(f"step {step}")
    return manager


def test_show(run, manager: StateManager) -> None:
    newest = manager.list_checkpoints()[0]
    for name in ("state/job", newest.id, "state/job~0"):
        outcome = run("show", name)
        assert outcome.code == 0
        assert newest.id in outcome.out
        assert str(newest.path) in outcome.out
        assert '"step": 2' in outcome.out
    told = run("show", "state/job~", "--json").json
    assert told["state"] == {"rows": {"n": [1]}, "step": 1}
    assert told["file"]["reason"] == "step 1"
    assert told["parent"] == manager.list_checkpoints()[2].id
    assert run("show", "state/job~2", "--part", "state").json["step"] == 0
    assert run("show", "state/job", "--part", "other").code == 3


def test_an_ancestor_that_is_not_kept(run, manager: StateManager) -> None:
    oldest = manager.list_checkpoints()[-1]
    for command in (("show", "state/job~3"), ("diff", "state/job~3", "state/job")):
        outcome = run(*command)
        assert outcome.code == 3
        assert f"nothing before checkpoint {oldest.id} of job is kept" in outcome.err
        assert "list --files" in outcome.err


@pytest.mark.parametrize("verb", ["log", "undo"])
def test_verbs_of_the_store_say_where_it_is(run, manager: StateManager, verb: str) -> None:
    outcome = run(verb, "state/job")
    assert outcome.code == 3
    assert "it is kept as files" in outcome.err


def test_diff(run, manager: StateManager) -> None:
    lines = run("diff", "state/job~1", "state/job").out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["state:", "step", "1", "2"],
        ["state:", "rows.n[0]", "1", "2"],
    ]
    told = run("diff", "state/job~2", manager.list_checkpoints()[0].id, "--json").json
    assert [each["path"] for each in told["values"]] == ["step", "rows.n[0]"]
    assert run("diff", "state/job").out == run("diff", "state/job~1", "state/job").out
    same = run("diff", "state/job", "state/job")
    assert "same content" in same.err


def test_rollback_and_going_on(run, manager: StateManager) -> None:
    outcome = run("rollback", "state/job")
    assert outcome.out.startswith("head: ")
    loaded = StateManager.load("job", directory=manager.checkpoint_dir)
    assert loaded.get_state("step") == 1
    oldest = manager.list_checkpoints()[-1]
    told = run("rollback", "state/job", "--to", oldest.id, "--json").json
    assert told["file"]["rollback_of"] == oldest.id
    assert StateManager.load("job", directory=manager.checkpoint_dir).get_state("step") == 0
    assert run("rollback", "state/job", "--to", "state/job~", "--files").code == 3
    assert run("rollback", oldest.id).code == 11
    manager.fork("sibling")
    assert run("rollback", "state/job", "--to", "state/sibling").code == 11


def test_nothing_is_removed_by_it(run, manager: StateManager) -> None:
    for _ in range(12):
        run("rollback", "state/job", "--to", manager.list_checkpoints()[-1].id)
    assert len(manager.list_checkpoints()) == 15


def test_fork(run, manager: StateManager) -> None:
    assert run("fork", "state/job~1", "branch").code == 0
    branch = StateManager.load("branch", directory=manager.checkpoint_dir)
    assert branch.get_state("step") == 1
    assert branch.parent_session == "job"
    assert run("fork", "state/job", "branch").code == 4
    assert run("fork", "state/job", "../x").code == 11


def test_list_knows_them(run, manager: StateManager) -> None:
    assert len(run("list", "state/job", "--json").json["files"]) == 3


def test_the_store_comes_first(run, manager: StateManager) -> None:
    with open_store() as store:
        on_store = StateManager("job", store=store)
        on_store.set_state("where", "store")
        on_store.checkpoint("on the store")
    assert run("show", "state/job", "--json").json["checkpoint"]["reason"] == "on the store"
    assert run("show", "state/job", "--files", "--json").json["file"]["reason"] == "step 2"
    for verb in (["diff", "state/job~1", "state/job"], ["rollback", "state/job"]):
        assert run(*verb, "--files").code == 0
    with open_store() as store:
        assert store.count("state/job") == 1


def test_names_that_are_not_there_or_twice(run, manager: StateManager, tmp_path: Path) -> None:
    assert run("show", "state/nobody").code == 3
    assert run("show", "20200101_000000_000000").code == 3
    assert run("show", "nonsense", "--files").code == 3
    StateManager("job", directory=tmp_path / "elsewhere").checkpoint()
    outcome = run("show", "state/job")
    assert outcome.code == 11
    assert "elsewhere" in outcome.err


def test_a_damaged_file_is_told(run, manager: StateManager) -> None:
    newest = manager.list_checkpoints()[0]
    assert newest.path
    newest.path.write_text("{")
    assert run("show", newest.id).code == 3
    assert run("show", "state/job", "--json").json["file"]["reason"] == "step 1"
