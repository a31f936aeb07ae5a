"""A state on a store: what the store sees of it, and what others do there meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from holdfast.model.errors import Conflict, Denied, HoldfastError, NotFound
from holdfast.state import StateManager
from holdfast.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as opened:
        yield opened


def test_the_subject_and_the_part(store: Store) -> None:
    manager = StateManager("s", store=store)
    manager.set_state("current_stage", "clean")
    made = manager.checkpoint("why")
    head = store.head("state/s")
    assert head
    assert (head.id, head.reason, head.stage, head.time) == (made.id, "why", "clean", made.time)
    assert made.path is None
    (part,) = store.show(head).parts
    assert (part.name, part.split) == ("state", "structure")
    assert store.value(head, "state")["state_info"] == {"current_stage": "clean"}
    assert store.verify(deep=True).ok


def test_what_did_not_change_is_not_stored_again(store: Store) -> None:
    manager = StateManager("s", store=store)
    manager.state_data.update({f"key {n}": f"{n}" * 500 for n in range(2000)})
    manager.checkpoint()
    manager.set_state("key 7", "changed")
    manager.checkpoint()
    second, first = store.list(subject="state/s")
    assert second.size_bytes > 1_000_000
    assert second.stored_bytes < first.stored_bytes / 10


def test_what_is_pinned_or_tagged_stays_beyond_the_limit(store: Store) -> None:
    manager = StateManager("s", store=store, checkpoint_limit=2)
    pinned, tagged = manager.checkpoint("pinned"), manager.checkpoint("tagged")
    store.pin(pinned.id)
    store.tag(tagged.id, "good")
    for _ in range(4):
        manager.checkpoint()
    found = manager.list_checkpoints()
    assert len(found) == 4
    assert [each.reason for each in found[2:]] == ["tagged", "pinned"]


def test_the_saved_state_is_no_checkpoint(store: Store) -> None:
    manager = StateManager("s", store=store)
    for step in range(3):
        manager.set_state("step", step)
        manager.save_state()
    assert store.list(subject="state/s") == []
    assert len(store.list(subject="state/s/saved")) == 1


def test_moves_made_by_others_are_followed_on_load(store: Store) -> None:
    manager = StateManager("s", store=store)
    for step in (1, 2, 3):
        manager.set_state("step", step)
        manager.checkpoint()
    third, second, first = manager.list_checkpoints()
    store.restore(second.id)
    loaded = StateManager.load("s", store=store)
    assert loaded.state_data == {"step": 2}
    loaded.rollback()
    assert loaded.state_data == {"step": 1}
    store.rollback("state/s", to=third.id)
    assert StateManager.load("s", store=store).state_data == {"step": 3}
    with pytest.raises(NotFound):
        StateManager.load("s", store=store).rollback(store.list(subject="state/s")[0].id[:-1] + "x")
    assert first in manager.list_checkpoints()


@pytest.mark.parametrize("saves", ["before", "after"])
def test_the_last_move_or_save_is_loaded(store: Store, saves: str) -> None:
    """A checkpoint that somebody restores has the time at which it was made, long before."""
    manager = StateManager("s", store=store)
    for step in (1, 2):
        manager.set_state("step", step)
        manager.checkpoint()
    first = manager.list_checkpoints()[1]
    manager.set_state("step", "saved")
    manager.save_state()
    store.restore(first.id)
    assert StateManager.load("s", store=store).state_data == {"step": 1}
    if saves == "after":
        other = StateManager.load("s", store=store)
        other.set_state("step", "saved again")
        other.save_state()
        assert StateManager.load("s", store=store).state_data == {"step": "saved again"}
    store.undo("state/s")
    assert StateManager.load("s", store=store).state_data == {"step": 2}


def test_a_parent_that_others_deleted_stops_no_checkpoint(store: Store) -> None:
    manager = StateManager("s", store=store)
    first = manager.checkpoint()
    manager.checkpoint()
    store.delete(*(each.id for each in manager.list_checkpoints()))
    made = manager.checkpoint()
    assert manager.list_checkpoints() == [made]
    with pytest.raises(NotFound):
        manager.rollback()
    with pytest.raises(NotFound):
        manager.rollback(first)


def test_ids_of_other_subjects_are_not_found(store: Store) -> None:
    other = StateManager("other", store=store).checkpoint()
    manager = StateManager("s", store=store)
    manager.checkpoint()
    for wanted in (other.id, "state/other"):
        with pytest.raises(NotFound):
            manager.rollback(wanted)


def test_a_fork_by_either_side_is_in_the_lineage(store: Store) -> None:
    manager = StateManager("s", store=store)
    manager.set_state("step", 1)
    made = manager.checkpoint()
    manager.fork("ours")
    store.fork("state/s", "theirs")
    for name in ("ours", "theirs"):
        forked = store.resolve(f"state/{name}")
        assert forked.parents == (made.id,)
        loaded = StateManager.load(name, store=store)
        assert (loaded.parent_session, loaded.state_data) == ("s", {"step": 1})
        with pytest.raises(NotFound):
            loaded.rollback()
        loaded.checkpoint()
        assert StateManager.load(name, store=store).parent_session == "s"


def test_a_difference_names_the_values(store: Store) -> None:
    manager = StateManager("s", store=store)
    manager.set_state("step", 1)
    one = manager.checkpoint()
    manager.set_state("step", 2)
    other = manager.checkpoint()
    (change,) = store.diff(one.id, other.id).values
    assert (change.before, change.after) == (1, 2)
    assert "step" in str(change.path)


def test_short_ids_work(store: Store) -> None:
    manager = StateManager("s", store=store)
    manager.set_state("step", 1)
    short = store.resolve(manager.checkpoint().id).short
    manager.set_state("step", 2)
    manager.checkpoint()
    manager.rollback(short)
    assert manager.state_data == {"step": 1}


def test_a_state_signed_by_another_key_is_not_loaded(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StateManager("s", store=store).checkpoint()
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "elsewhere"))
    with open_store(tmp_path / "store") as foreign, pytest.raises(Denied):
        StateManager.load("s", store=foreign)


def test_two_managers_each_keep_their_own_line(store: Store, tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as again:
        one, other = StateManager("s", store=store), StateManager("s", store=again)
        for step in (1, 2):
            for manager, who in ((one, "one"), (other, "other")):
                manager.set_state("who", f"{who} {step}")
                manager.checkpoint()
        assert len(one.list_checkpoints()) == len(other.list_checkpoints()) == 4
        one.rollback()
        assert one.state_data == {"who": "one 1"}
        other.rollback()
        assert other.state_data == {"who": "other 1"}


def test_a_fork_never_takes_the_place_of_a_session_that_was_undone(store: Store) -> None:
    manager = StateManager("w", store=store)
    manager.set_state("k", 1)
    made = manager.checkpoint()
    store.undo("state/w")
    other = StateManager("y", store=store)
    with pytest.raises(Conflict):
        other.fork("w")
    assert [each.id for each in store.list(subject="state/w")] == [made.id]
    with pytest.raises(NotFound, match="no head") as told:
        StateManager.load("w", store=store)
    assert told.value.hint
    assert store.resolve(made.id).short in told.value.hint
    store.restore(made.id)
    assert StateManager.load("w", store=store).state_data == {"k": 1}


def test_a_fork_of_a_checkpoint_that_others_deleted(store: Store) -> None:
    manager = StateManager("s", store=store)
    manager.set_state("k", 1)
    store.delete(manager.checkpoint().id)
    manager.fork("other")
    assert StateManager.load("other", store=store).state_data == {"k": 1}


def _all_at_once(calls: list[Callable[[], object]]) -> list[object]:
    """What each call gave or raised, all of them begun together."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> object:
        gate.wait()
        try:
            return call()
        except HoldfastError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_of_forks_to_one_name_exactly_one_wins(store: Store) -> None:
    managers = [StateManager(f"from-{n}", store=store) for n in range(4)]
    for manager in managers:
        manager.set_state("who", manager.session_id)
    for round_ in range(5):
        name = f"to-{round_}"
        outcomes = _all_at_once([partial(each.fork, name) for each in managers])
        (won,) = (each for each in outcomes if isinstance(each, StateManager))
        assert sum(isinstance(each, Conflict) for each in outcomes) == 3
        assert len(store.list(subject=f"state/{name}")) == 1
        assert StateManager.load(name, store=store).state_data == won.state_data


def test_writers_of_one_session_do_not_stumble_over_each_others_retention(
    tmp_path: Path,
) -> None:
    stores = [open_store(tmp_path / "store") for _ in range(10)]
    writers = [StateManager("s", store=each, checkpoint_limit=2) for each in stores]

    def write(writer: StateManager) -> list[str]:
        made = []
        for _ in range(6):
            made.append(writer.checkpoint().id)
            writer.save_state()
        return made

    outcomes = _all_at_once([partial(write, each) for each in writers])
    assert [each for each in outcomes if isinstance(each, Exception)] == []
    assert len({made for each in outcomes if isinstance(each, list) for made in each}) == 60
    StateManager.load("s", store=stores[0])
    for each in stores:
        each.close()


WRITER = """
import sys
from holdfast.state import StateManager
from holdfast.store import open_store
manager = StateManager("s", store=open_store(sys.argv[1]), checkpoint_limit=3)
manager.set_state("filling", "x" * 200_000)
print("ready", flush=True)
for step in range(100_000):
    manager.set_state("step", step)
    manager.checkpoint()
    print(step, flush=True)
"""


def test_killed_at_any_moment_nothing_saved_is_lost(tmp_path: Path) -> None:
    chance = random.Random(5)
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path / "store"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.02, 0.2))
        os.kill(process.pid, signal.SIGKILL)
        durable = [int(line) for line in process.communicate()[0].splitlines()[:-1]]
        with open_store(tmp_path / "store") as store:
            if durable:
                loaded = StateManager.load("s", store=store)
                assert loaded.state_data["step"] >= durable[-1]
                assert len(loaded.list_checkpoints()) <= 4
            # An entry that was cut off is reported until the next append (spec, section 4); until
            # then it is the only thing that may be, and no checkpoint is affected by it.
            cut = store.verify().problems
            assert len(cut) <= 1
            assert not any(problem.affects for problem in cut)
            with store.draft("state/after") as draft:
                draft.put("x", b"y")
                draft.commit()
            assert store.verify().ok


ELSEWHERE = """
import sys
from holdfast.state import StateManager
from holdfast.store import open_store
with open_store(sys.argv[1]) as store:
    manager = StateManager.load("s", store=store)
    assert manager.state_data == {"current_stage": "clean", "rows": [1, 2, 3]}, manager.state_data
    manager.set_state("current_stage", "train")
    manager.checkpoint("on another machine")
    manager.fork("branch")
"""


def test_a_session_goes_on_on_another_machine(
    on_s3: str, holdfast_home: Path, tmp_path: Path
) -> None:
    """A machine is a home of its own; that both know the key is all they share beside the store."""
    with open_store(on_s3) as store:
        manager = StateManager("s", store=store)
        manager.state_data = {"current_stage": "clean", "rows": [1, 2, 3]}
        first = manager.checkpoint("here")
        other = tmp_path / "other"
        other.mkdir()
        shutil.copy(holdfast_home / "key", other / "key")
        environment = {**os.environ, "HOLDFAST_HOME": str(other)}
        program = [sys.executable, "-c", ELSEWHERE, on_s3]
        subprocess.run(program, env=environment, check=True, timeout=120)
        assert [each.reason for each in manager.list_checkpoints()] == [
            "on another machine",
            "here",
        ]
        again = StateManager.load("s", store=store)
        assert again.state_data == {"current_stage": "train", "rows": [1, 2, 3]}
        assert StateManager.load("branch", store=store).parent_session == "s"
        again.rollback(first)
        assert again.state_data["current_stage"] == "clean"
