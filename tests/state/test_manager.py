"""What a StateManager promises, whether it keeps the state in files or on a store."""

from __future__ import annotations

import dataclasses
import enum
import threading
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import BadInput, Conflict, Denied, NotFound, Unsupported, UsageError
from holdfast.state import StateCheckpoint, StateManager, types


def manager_with(kept: dict[str, Any], *steps: int, **more: Any) -> StateManager:
    """A session "s" with a checkpoint for each step."""
    manager = StateManager("s", **kept, **more)
    for step in steps:
        manager.set_state("step", step)
        manager.checkpoint(f"step {step}")
    return manager


def test_a_session_without_an_id_gets_a_uuid(kept: dict[str, Any]) -> None:
    one, other = StateManager(**kept), StateManager(**kept)
    assert str(uuid.UUID(one.session_id)) == one.session_id != other.session_id


def test_ids_come_from_where_they_are_asked_for(kept: dict[str, Any]) -> None:
    assert StateManager(**kept, new_id=lambda: "made").session_id == "made"


def test_state_is_set_and_got(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.set_state("progress", 0.5)
    assert manager.get_state("progress") == 0.5
    assert manager.get_state("absent") is None
    assert manager.get_state("absent", 0.0) == 0.0
    assert manager.state_data == {"progress": 0.5}


def test_a_checkpoint_says_when_why_and_where_in_the_work(kept: dict[str, Any]) -> None:
    before = datetime.now(UTC)
    manager = StateManager("s", **kept)
    plain = manager.checkpoint()
    manager.set_state("current_stage", "enhance")
    staged = manager.checkpoint("transition")
    assert (plain.reason, plain.stage) == ("manual", "unknown")
    assert (staged.reason, staged.stage) == ("transition", "enhance")
    assert before <= plain.time < staged.time <= datetime.now(UTC)
    assert manager.list_checkpoints() == [staged, plain]


class Stage(enum.Enum):
    CLEAN = "clean"


def test_a_stage_may_be_an_enum(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.set_state("current_stage", Stage.CLEAN)
    assert manager.checkpoint().stage == "clean"


def test_the_limit_is_ten_unless_given(kept: dict[str, Any]) -> None:
    manager = manager_with(kept, *range(13))
    assert manager.checkpoint_limit == 10
    reasons = [each.reason for each in manager.list_checkpoints()]
    assert reasons == [f"step {step}" for step in range(12, 2, -1)]
    manager.checkpoint_limit = 2
    manager.checkpoint("last")
    assert [each.reason for each in manager.list_checkpoints()] == ["last", "step 12"]
    assert len(manager_with(kept, *range(20, 25), checkpoint_limit=4).list_checkpoints()) == 4


@pytest.mark.parametrize("limit", [0, -1, 1.5, "10", None, True])
def test_an_impossible_limit_is_refused(kept: dict[str, Any], limit: Any) -> None:
    with pytest.raises(BadInput):
        StateManager("s", **kept, checkpoint_limit=limit)


def test_rollback_goes_to_the_parent_and_then_further(kept: dict[str, Any]) -> None:
    manager = manager_with(kept, 1, 2, 3)
    held = manager.state_data
    manager.set_state("unsaved", True)
    manager.rollback()
    assert manager.state_data == {"step": 2}
    assert manager.state_data is held
    manager.rollback()
    assert manager.state_data == {"step": 1}
    with pytest.raises(NotFound):
        manager.rollback()
    assert manager.state_data == {"step": 1}


def test_work_after_a_rollback_descends_from_what_it_went_to(kept: dict[str, Any]) -> None:
    manager = manager_with(kept, 1, 2, 3)
    manager.rollback()
    manager.set_state("step", 4)
    manager.checkpoint()
    manager.rollback()
    assert manager.state_data == {"step": 2}
    manager.rollback()
    assert manager.state_data == {"step": 1}


def test_a_rollback_can_be_taken_back(kept: dict[str, Any]) -> None:
    manager = manager_with(kept, 1, 2)
    newest = manager.list_checkpoints()[0]
    made = manager.rollback()
    assert made.rollback_of == manager.list_checkpoints()[-1].id
    assert newest in manager.list_checkpoints()
    manager.rollback(newest)
    assert manager.state_data == {"step": 2}
    manager.rollback()
    assert manager.state_data == {"step": 1}


def test_rollback_to_any_checkpoint_by_id(kept: dict[str, Any]) -> None:
    manager = manager_with(kept, 1, 2, 3)
    third, second, first = manager.list_checkpoints()
    for wanted, step in ((first, 1), (third, 3), (second, 2)):
        made = manager.rollback(wanted.id)
        assert manager.state_data == {"step": step}
        assert made.rollback_of == wanted.id


def test_rolling_back_many_times_pushes_nothing_real_out(kept: dict[str, Any]) -> None:
    manager = manager_with(kept, *range(10))
    for step in range(8, 0, -1):
        manager.rollback()
        assert manager.state_data == {"step": step}
        assert len(manager.list_checkpoints()) == 10


@pytest.mark.parametrize("wanted", ["20260101_000000_000000", "nonsense", "../s", ""])
def test_rollback_to_what_is_not_there(kept: dict[str, Any], wanted: str) -> None:
    manager = manager_with(kept, 1)
    with pytest.raises((NotFound, BadInput)):
        manager.rollback(wanted)
    assert manager.state_data == {"step": 1}
    assert len(manager.list_checkpoints()) == 1


def test_rollback_without_any_checkpoint(kept: dict[str, Any]) -> None:
    with pytest.raises(NotFound):
        StateManager("s", **kept).rollback()


def test_a_new_manager_goes_on_from_the_newest_checkpoint(kept: dict[str, Any]) -> None:
    manager_with(kept, 1, 2)
    again = manager_with(kept, 3)
    again.rollback()
    assert again.state_data == {"step": 2}


def test_load_takes_up_the_newest_checkpoint(kept: dict[str, Any]) -> None:
    manager_with(kept, 1, 2)
    loaded = StateManager.load("s", **kept)
    assert loaded.state_data == {"step": 2}
    loaded.rollback()
    assert loaded.state_data == {"step": 1}


def test_load_takes_up_the_saved_state_when_it_is_newer(kept: dict[str, Any]) -> None:
    manager = manager_with(kept, 1, 2)
    manager.set_state("step", 2.5)
    manager.save_state()
    loaded = StateManager.load("s", **kept)
    assert loaded.state_data == {"step": 2.5}
    assert len(loaded.list_checkpoints()) == 2
    loaded.rollback()
    assert loaded.state_data == {"step": 1}
    assert StateManager.load("s", **kept).state_data == {"step": 1}


def test_saving_again_replaces(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    for step in range(3):
        manager.set_state("step", step)
        manager.save_state()
    assert StateManager.load("s", **kept).state_data == {"step": 2}
    assert manager.list_checkpoints() == []


def test_load_of_what_is_not_there(kept: dict[str, Any]) -> None:
    with pytest.raises(NotFound):
        StateManager.load("absent", **kept)


def test_a_fork_goes_its_own_way(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.set_state("results", [1, {"deep": (2, 3)}])
    manager.checkpoint()
    other = manager.fork("other")
    assert other.session_id == "other"
    assert other.parent_session == "s"
    assert other.state_data == manager.state_data
    other.state_data["results"].append("only here")
    other.checkpoint()
    assert manager.state_data == {"results": [1, {"deep": (2, 3)}]}
    assert len(manager.list_checkpoints()) == 1
    loaded = StateManager.load("other", **kept)
    assert loaded.parent_session == "s"
    assert loaded.state_data["results"][-1] == "only here"
    loaded.rollback()
    assert loaded.state_data == manager.state_data


def test_a_fork_of_an_earlier_checkpoint(kept: dict[str, Any]) -> None:
    manager = manager_with(kept, 1, 2)
    first = manager.list_checkpoints()[-1]
    assert manager.fork("other", first.id).state_data == {"step": 1}
    assert manager.state_data == {"step": 2}


def test_a_fork_does_not_overwrite_a_session(kept: dict[str, Any]) -> None:
    manager = manager_with(kept, 1)
    manager.fork("other")
    with pytest.raises(Conflict):
        manager.fork("other")
    with pytest.raises(Conflict):
        manager.fork("s")
    StateManager("saved", **kept).save_state()
    with pytest.raises(Conflict):
        manager.fork("saved")


def test_a_parent_session_in_the_state_is_recorded(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.set_state("parent_session", "older")
    manager.checkpoint()
    assert StateManager.load("s", **kept).parent_session == "older"
    manager.set_state("parent_session", 7)
    with pytest.raises(BadInput):
        manager.checkpoint()


def test_what_cannot_be_saved_is_named_and_nothing_is_written(kept: dict[str, Any]) -> None:
    manager = manager_with(kept, 1)
    manager.set_state("results", [{}, {"worker": threading.Lock()}])
    with pytest.raises(BadInput, match=r"results\[1\]\.worker.*lock"):
        manager.checkpoint()
    with pytest.raises(BadInput):
        manager.save_state()
    with pytest.raises(BadInput):
        manager.fork("other")
    assert len(manager.list_checkpoints()) == 1
    with pytest.raises(NotFound):
        StateManager.load("other", **kept)


@dataclasses.dataclass
class Settings:
    size: int
    path: Path


def test_values_come_back_as_they_were(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    state = {
        "when": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "settings": Settings(3, Path("/data/in")),
        "stage": Stage.CLEAN,
        "raw": b"\x00\xff",
        "seen": {1, "two", (3,)},
        7: "as a key inside",
    }
    manager.set_state("all", state)
    manager.checkpoint()
    loaded = StateManager.load("s", **kept)
    assert loaded.state_data == {"all": state}
    manager.state_data.clear()
    manager.rollback(manager.list_checkpoints()[0].id)
    assert manager.state_data == {"all": state}


def test_a_class_nobody_registered_is_not_rebuilt(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.set_state("settings", {"mine": Settings(3, Path("x"))})
    manager.checkpoint()
    # As in another process, which has not saved one itself:
    del types.known._classes[types.name_of(Settings)]
    with pytest.raises(Denied, match=r"settings\.mine.*Settings"):
        StateManager.load("s", **kept)
    loaded = StateManager.load("s", **kept, types=[Settings])
    assert loaded.state_data == manager.state_data


def test_reasons_are_text(kept: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        StateManager("s", **kept).checkpoint(3)  # type: ignore[arg-type]


def test_threads_may_share_a_manager(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept, checkpoint_limit=100)
    made: list[StateCheckpoint] = []

    def work(number: int) -> None:
        for step in range(5):
            manager.set_state(f"{number}-{step}", step)
            made.append(manager.checkpoint())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each.id for each in made}) == 20
    assert len(manager.list_checkpoints()) == 20
    assert len(StateManager.load("s", **kept).state_data) == 20


BAD_IDS = [
    "",
    "..",
    ".",
    "a/b",
    "/tmp/x",
    "../x",
    "a..b",
    "a\\b",
    ".hidden",
    "a\0b",
    "a\nb",
    "x" * 201,
]
BAD_IDS += ["a_checkpoint_20260101_000000_000000", "\ud800", "a*", "a b"]


@pytest.mark.parametrize("session_id", [*BAD_IDS, 7, Path("a")])
def test_session_ids_that_are_paths_or_worse(kept: dict[str, Any], session_id: Any) -> None:
    with pytest.raises(BadInput):
        StateManager(session_id, **kept)
    with pytest.raises(BadInput):
        StateManager.load(session_id, **kept)
    with pytest.raises(BadInput):
        StateManager("s", **kept).fork(session_id)


@pytest.mark.parametrize("app", ["", "..", "a/b", "../x", ".x", "a b", 7, None])
def test_bad_app_names(app: Any) -> None:
    with pytest.raises(BadInput):
        StateManager("s", app=app)


def test_one_place_at_a_time(kept: dict[str, Any], tmp_path: Path) -> None:
    manager = StateManager("s", **kept)
    if "store" in kept:
        with pytest.raises(UsageError):
            StateManager("s", **kept, directory=tmp_path)
        with pytest.raises(Unsupported):
            print(manager.checkpoint_dir)
        with pytest.raises(UsageError):
            manager.checkpoint_dir = tmp_path
    else:
        assert manager.checkpoint_dir == kept["directory"]


@pytest.mark.parametrize("what", ["reason", "current_stage", "parent_session"])
def test_half_a_character_is_refused(kept: dict[str, Any], what: str) -> None:
    manager = StateManager("s", **kept)
    reason = "manual"
    if what == "reason":
        reason = "half \ud800"
    else:
        manager.set_state(what, "half \ud800")
        with pytest.raises(BadInput):
            manager.save_state()
        with pytest.raises(BadInput):
            manager.fork("other")
    with pytest.raises(BadInput):
        manager.checkpoint(reason)
    assert manager.list_checkpoints() == []
