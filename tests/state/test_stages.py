"""Stages: a checkpoint on entry, and the way back when they fail."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.state import StateCheckpoint, StateManager


class Broken(Exception):
    pass


def fail_in(
    manager: StateManager,
    name: str,
    work: Callable[[StateCheckpoint], object],
    error: type[BaseException] = Broken,
) -> None:
    """A stage that does some work and then fails."""
    with manager.stage(name) as entry:
        work(entry)
        raise error


def test_a_stage_begins_with_a_checkpoint(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.set_state("rows", [1])
    with manager.stage("enhance") as entry:
        assert manager.get_state("current_stage") == "enhance"
        manager.get_state("rows").append(2)
    assert (entry.stage, entry.reason) == ("enhance", "stage enhance")
    assert manager.list_checkpoints()[0].id == entry.id
    assert manager.state_data == {"rows": [1, 2], "current_stage": "enhance"}


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_stage_that_fails_leaves_the_state_as_it_was(
    kept: dict[str, Any], error: type[BaseException]
) -> None:
    manager = StateManager("s", **kept)
    manager.set_state("rows", [1])
    same_dict = manager.state_data
    entries = []

    def work(entry: StateCheckpoint) -> None:
        entries.append(entry)
        manager.get_state("rows").append(2)
        manager.checkpoint("half way")
        manager.set_state("junk", True)

    with pytest.raises(error):
        fail_in(manager, "enhance", work, error)
    assert manager.state_data is same_dict
    assert manager.state_data == {"rows": [1], "current_stage": "enhance"}
    # It is not only so in memory: whoever loads the session finds the same.
    again = StateManager.load("s", **kept)
    assert again.state_data == manager.state_data
    newest = again.list_checkpoints()[0]
    assert newest.rollback_of == entries[0].id


def test_stages_inside_stages(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    with manager.stage("outer"):
        manager.set_state("a", 1)
        with pytest.raises(Broken):
            fail_in(manager, "inner", lambda _: manager.set_state("a", 2))
        assert manager.get_state("a") == 1
        assert manager.get_state("current_stage") == "outer"
        with manager.stage("second"):
            manager.set_state("a", 3)
        assert manager.get_state("current_stage") == "outer"
    assert manager.get_state("current_stage") == "outer"
    assert manager.get_state("a") == 3


def test_a_stage_whose_first_checkpoint_was_pushed_out(kept: dict[str, Any]) -> None:
    manager = StateManager("s", checkpoint_limit=2, **kept)
    manager.set_state("n", 0)

    def work(entry: StateCheckpoint) -> None:
        for n in range(1, 6):
            manager.set_state("n", n)
            manager.checkpoint()
        assert entry.id not in [each.id for each in manager.list_checkpoints()]

    with pytest.raises(Broken):
        fail_in(manager, "long", work)
    assert manager.get_state("n") == 0
    assert StateManager.load("s", **kept).get_state("n") == 0


def test_a_stage_that_cannot_begin_changes_nothing(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.set_state("bad", object())
    with pytest.raises(Exception, match="bad"), manager.stage("x"):
        raise AssertionError("never entered")
    assert "current_stage" not in manager.state_data


def test_a_stage_whose_rollback_finds_no_room(full_disk: Path) -> None:
    """What the stage raised comes through, with a note, and memory is right."""
    manager = StateManager("s", directory=full_disk)
    manager.set_state("n", 0)

    def work(_: StateCheckpoint) -> None:
        manager.set_state("n", 1)
        filling = (full_disk / "filling").open("wb", buffering=0)
        with filling as stream, contextlib.suppress(OSError):
            while stream.write(bytes(4096)):
                pass

    with pytest.raises(Broken) as caught:
        fail_in(manager, "x", work)
    assert manager.get_state("n") == 0
    assert any("could not be saved" in note for note in caught.value.__notes__)
    (full_disk / "filling").unlink()
    assert StateManager.load("s", directory=full_disk).get_state("n") == 0
