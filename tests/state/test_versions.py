"""An application's own schema: states of older versions are brought up when they are read."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model.errors import BadInput, Unsupported
from holdfast.state import StateManager


def rename(state: dict[str, Any]) -> dict[str, Any]:
    return {("rows" if key == "lines" else key): value for key, value in state.items()}


def count(state: dict[str, Any]) -> dict[str, Any]:
    state["count"] = len(state["rows"])
    return state


STEPS = {1: rename, 2: count}


@pytest.fixture
def first(kept: dict[str, Any]) -> StateManager:
    manager = StateManager("s", **kept)
    manager.set_state("lines", [1, 2])
    manager.checkpoint()
    return manager


@pytest.mark.usefixtures("first")
def test_a_chain_of_steps(kept: dict[str, Any]) -> None:
    manager = StateManager.load("s", version=3, migrations=STEPS, **kept)
    assert manager.state_data == {"rows": [1, 2], "count": 2}
    manager.checkpoint()
    # It is at version 3 now; nothing is done twice.
    again = StateManager.load("s", version=3, migrations=STEPS, **kept)
    assert again.state_data == {"rows": [1, 2], "count": 2}
    # What was saved then is still there as it was, and comes up on the way back.
    again.rollback()
    assert again.state_data == {"rows": [1, 2], "count": 2}


def test_forks_and_saved_states_carry_their_version(
    first: StateManager, kept: dict[str, Any]
) -> None:
    first.fork("other")
    first.save_state()
    for name in ("s", "other"):
        loaded = StateManager.load(name, version=2, migrations={1: rename}, **kept)
        assert loaded.state_data == {"rows": [1, 2]}


@pytest.mark.usefixtures("first")
def test_no_way_there(kept: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="no migration from 1 to 2") as caught:
        StateManager.load("s", version=3, migrations={2: count}, **kept)
    assert "migrations={1: ...}" in (caught.value.hint or "")
    newer = StateManager.load("s", version=3, migrations=STEPS, **kept)
    newer.checkpoint()
    with pytest.raises(Unsupported, match="saved at version 3"):
        StateManager.load("s", version=2, migrations={1: rename}, **kept)


def test_a_rollback_that_has_no_way_moves_nothing(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    made = manager.checkpoint()
    newer = StateManager("s", version=2, **kept)
    newer.set_state("x", 1)
    before = newer.list_checkpoints()
    with pytest.raises(Unsupported):
        newer.rollback(made)
    assert newer.state_data == {"x": 1}
    assert newer.list_checkpoints() == before


@pytest.mark.parametrize(
    "given",
    [{"version": 0}, {"version": True}, {"version": "2"}, {"migrations": {1: rename}}]
    + [{"version": 2, "migrations": {key: rename}} for key in (0, 2, "1")]
    + [{"version": 2, "migrations": {1: "rename"}}],
)
def test_a_chain_that_leads_nowhere(kept: dict[str, Any], given: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        StateManager("s", **kept, **given)


@pytest.mark.usefixtures("first")
def test_a_step_that_gives_no_state(kept: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="not a dict"):
        StateManager.load("s", version=2, migrations={1: lambda _: None}, **kept)
