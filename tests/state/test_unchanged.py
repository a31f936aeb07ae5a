"""What is not looked at again because it did not change: whatever is done to a state is saved."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import StorageFull
from holdfast.state import StateManager
from holdfast.store import open_store

VALUES: list[Any] = [1, True, 1.0, 0, False, 0.0, -0.0, None, "", "a", "a" * 20, "ä" * 700, 2**70]
VALUES += [b"a", (1, 2), {1, 2}, {"k": 1}, [], {}, ["x"] * 30, {"n": {"m": [1, 2]}}, float("inf")]


def places(value: Any) -> list[Any]:
    """Every dict and list inside, the value itself first."""
    found = [value]
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            found += places(each)
    return found


def change(state: dict[str, Any], chance: random.Random) -> None:
    """One change in place, somewhere."""
    where = chance.choice(places(state))
    new = copy.deepcopy(chance.choice(VALUES))
    if isinstance(where, dict):
        act = chance.choice(("set", "set", "delete", "again"))
        if act == "set":
            where[f"k{chance.randrange(12)}"] = new
        elif act == "delete" and where:
            del where[chance.choice(list(where))]
        elif act == "again" and where:
            key = chance.choice(list(where))
            where[key] = where.pop(key)  # the same, in another order
    else:
        act = chance.choice(("append", "insert", "set", "pop", "swap"))
        if act in ("append", "insert"):
            where.insert(0 if act == "insert" else len(where), new)
        elif where and act == "set":
            where[chance.randrange(len(where))] = new
        elif where and act == "pop":
            del where[chance.randrange(len(where))]
        elif act == "swap":
            where.reverse()


def told(value: Any) -> str:
    """All of it, with types and order; sets have none."""
    return repr(value)


@pytest.mark.parametrize("seed", range(3))
def test_any_change_in_place_is_saved(kept: dict[str, Any], tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    manager = StateManager("s", checkpoint_limit=1000, **kept)
    manager.state_data.update({f"k{i}": [{"text": "x" * 300, "n": i}] * 3 for i in range(8)})
    wanted: list[tuple[str, str]] = []
    for _ in range(40):
        for _ in range(chance.randrange(3)):
            change(manager.state_data, chance)
        wanted.append((manager.checkpoint().id, told(manager.state_data)))
        assert told(StateManager.load("s", **kept).state_data) == wanted[-1][1]
    again = dict(kept)
    if "store" in kept:  # and not only from the memory of the one who wrote it
        again["store"] = open_store(tmp_path / "store")
        assert again["store"].verify(deep=True).ok
    reader = StateManager("s", checkpoint_limit=1000, **again)
    for checkpoint_id, state in wanted[::5]:
        reader.rollback(checkpoint_id)
        assert told(reader.state_data) == state


def test_what_is_loaded_is_not_what_is_remembered(kept: dict[str, Any]) -> None:
    """A state that came back may be changed without changing any checkpoint."""
    manager = StateManager("s", **kept)
    manager.set_state("rows", [{"n": 1, "pad": "p" * 600}] * 20)
    first = manager.checkpoint()
    for way in ("load", "fork", "rollback"):
        other = {
            "load": lambda: StateManager.load("s", **kept),
            "fork": lambda: manager.fork("other"),
            "rollback": lambda: manager.rollback(first) and manager,
        }[way]()
        other.state_data["rows"][3]["n"] = 99
        other.state_data["rows"].append("more")
        assert StateManager.load("s", **kept).state_data["rows"][3]["n"] == 1
        manager.rollback(first)
        assert len(manager.state_data["rows"]) == 20
        assert manager.state_data["rows"][3]["n"] == 1


def test_a_full_disk_on_a_store(full_disk: Path) -> None:
    """What was saved stays, what was remembered of the failed one does no harm."""
    with open_store(full_disk / "store") as store:
        manager = StateManager("s", store=store, checkpoint_limit=3)
        for step in range(5):
            manager.set_state("step", step)
            manager.checkpoint()
        before = manager.list_checkpoints()
        manager.set_state("big", random.Random(1).randbytes(1_500_000).hex())
        with pytest.raises(StorageFull):
            manager.checkpoint()
        with pytest.raises(StorageFull):
            manager.save_state()
        assert manager.list_checkpoints() == before
        assert StateManager.load("s", store=store).get_state("step") == 4
        del manager.state_data["big"]
        manager.set_state("step", 5)
        manager.checkpoint()
        assert store.verify(deep=True).ok
    with open_store(full_disk / "store") as again:
        assert StateManager.load("s", store=again).state_data == {"step": 5}
