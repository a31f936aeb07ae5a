"""One walk through the verbs, on a state that is kept as files and on one that is on a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.state import StateManager
from holdfast.store import open_store


@pytest.fixture(params=["files", "store"])
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], StateManager]:
    """How one takes up a session, as a program would; there is one called `job`."""
    kept: dict[str, Any] = {"directory": tmp_path / "states"}
    if request.param == "store":
        kept = {"store": open_store()}
    manager = StateManager("job", **kept)
    for step in range(3):
        manager.set_state("current_stage", f"stage {step}")
        manager.set_state("step", step)
        manager.checkpoint(f"step {step}")
    return lambda name: StateManager.load(name, **kept)


def test_the_verbs_do_the_same(run, load: Callable[[str], StateManager]) -> None:
    listed = run("list", "state/job").out.splitlines()
    assert [line.split()[1:4] for line in listed[1:]] == [
        ["state/job", "step", str(step)] for step in (2, 1, 0)
    ]
    shown = run("show", "state/job~1").out
    assert "step 1" in shown
    assert "stage 1" in shown
    whole = run("show", "state/job~2", "--part", "state").json
    assert whole.get("state_info", whole) == {"current_stage": "stage 0", "step": 0}

    changes = run("diff", "state/job~2", "state/job", "--json").json["values"]
    steps = next(each for each in changes if each["path"].endswith("step"))
    assert (steps["before"], steps["after"]) == (0, 2)

    assert run("rollback", "state/job").out.startswith("head: ")
    assert load("job").get_state("step") == 1
    assert run("rollback", "state/job").code == 0
    assert load("job").get_state("step") == 0
    assert run("rollback", "state/job").code == 3
    newest = next(each for each in load("job").list_checkpoints() if each.reason == "step 2")
    assert run("rollback", "state/job", "--to", newest.id).code == 0
    assert load("job").get_state("step") == 2

    assert run("fork", "state/job", "other").code == 0
    other = load("other")
    assert (other.get_state("step"), other.parent_session) == (2, "job")
    other.set_state("step", 7)
    other.checkpoint()
    assert load("job").get_state("step") == 2
    assert run("fork", "state/job", "other").code == 4
    assert run("show", "state/nobody").code == 3
