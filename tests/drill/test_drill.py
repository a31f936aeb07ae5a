"""Drills on real checkpoints, good and bad."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from tests.cli.conftest import Run, run  # noqa: F401

from holdfast import Session, StateManager, open_store
from holdfast.drill import drill
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.store.store import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return open_store(tmp_path / "store")


async def test_a_session_comes_back_the_same(store: Store, tmp_path: Path) -> None:
    async with Session(name="work", store=store) as session:
        await session.execute(
            "import numpy as np\n"
            "x = np.arange(200_000.0)\n"
            "view = x[:10]\n"
            "names = {'a': view, 'b': [1, {2, 3}]}\n"
            "def f(n): return n + len(names)\n"
            "import socket; waiting = socket.socket()\n"
        )
        made = await session.checkpoint()
    before = store.count()
    done = await drill(store, made.checkpoint, folder=tmp_path)
    assert done.ok
    assert done.tried
    assert done.problems == done.notes == ()  # nobody expects the socket back
    assert done.items == 7
    assert store.count() == before
    assert not list(tmp_path.glob("holdfast-drill-*"))


async def test_a_state_comes_back_the_same(store: Store) -> None:
    state = StateManager("plan", store=store)
    state.set_state("nested", {"deep": [1, (2, 3), {4}]})
    state.checkpoint()
    head = store.head("state/plan")
    assert head is not None
    done = await drill(store, head)
    assert (done.ok, done.tried, done.items, done.notes) == (True, True, 1, ())


@dataclass(frozen=True)
class Account:
    owner: str
    roles: tuple[str, ...]


class Colour(Enum):
    RED = "red"


async def test_states_need_no_classes_to_be_drilled(store: Store) -> None:
    """A state is healthy although this process has neither its classes, nor its migrations, nor
    its secrets."""
    state = StateManager("typed", store=store, types=(Account, Colour), version=3)
    state.set_state("accounts", {Account("ada", ("admin",)), Account("bob", ())})
    state.set_state("colour", Colour.RED)
    state.set_state("login", {"password": "correct horse"})
    state.checkpoint()
    state.save_state()
    heads = [each.head for each in store.subjects() if each.head is not None]
    assert {str(each.subject) for each in heads} == {"state/typed", "state/typed/saved"}
    for head in heads:
        done = await drill(store, head)
        assert (done.problems, done.tried, done.items) == ((), True, 3)
        assert any("test_drill:Account" in note for note in done.notes)
        assert any("login.password" in note for note in done.notes)


async def test_states_of_langgraph_are_drilled(store: Store) -> None:
    saver = HoldfastSaver(store)
    config = {"configurable": {"thread_id": "a thread/1", "checkpoint_ns": ""}}
    saver.put(config, empty_checkpoint(), {"source": "input", "step": -1}, {})
    (summary,) = store.subjects()
    assert summary.head is not None
    done = await drill(store, summary.head)
    assert (done.problems, done.tried) == ((), True)


async def test_values_that_no_version_wrote_fail_a_drill(store: Store) -> None:
    state = {"state_info": {"when": {"$type": "datetime", "value": "noon"}}, "state_version": 1}
    with store.draft("state/odd") as draft:
        draft.put("state", {**state, "schema_version": 1, "typed": True}, split="structure")
        made = draft.commit()
    done = await drill(store, made)
    assert not done.ok
    assert "when" in done.problems[0]


async def test_what_a_session_cannot_be_without_is_noticed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte is there, and yet it does not come back: a library is gone."""
    library = tmp_path / "library"
    library.mkdir()
    (library / "passing.py").write_text("class Thing:\n    pass\n")
    monkeypatch.setenv("PYTHONPATH", str(library))
    async with Session(name="work", store=store) as session:
        result = await session.execute("import passing\nthing = passing.Thing()\nx = 1")
        assert result.error is None
        made = await session.checkpoint()
    assert (await drill(store, made.checkpoint)).ok
    (library / "passing.py").unlink()
    done = await drill(store, made.checkpoint)
    assert store.verify(deep=True).ok
    assert not done.ok
    assert any("thing" in problem and "passing" in problem for problem in done.problems)


def flip(store: Store) -> None:
    """Change a byte in the middle of the largest file of the store."""
    root = Path(store.url)
    largest = max(
        (*root.glob("packs/*.pack"), *root.glob("log/*.log")), key=lambda p: p.stat().st_size
    )
    data = bytearray(largest.read_bytes())
    data[len(data.rstrip(b"\0")) // 2] ^= 1  # zeros may lie ahead of a log's next entry
    largest.write_bytes(data)


async def test_a_planted_corruption_is_found(store: Store, run: Run) -> None:  # noqa: F811
    async with Session(name="work", store=store) as session:
        await session.execute("import os\nbig = os.urandom(3_000_000)\nsmall = 1")
        made = await session.checkpoint()
    flip(store)
    again = open_store(store.url)
    done = await drill(again, made.checkpoint)
    assert not done.ok
    assert "damaged" in done.problems[0] or "does not match" in done.problems[0]


def test_on_the_command_line(store: Store, run: Run) -> None:  # noqa: F811
    for name in ("plan", "notes"):
        state = StateManager(name, store=store)
        state.set_state("text", "x" * 3_000_000)
        state.checkpoint()
    with store.draft("container/s") as draft:
        draft.put("memory/pages", b"m" * 5000)
        draft.commit()
    done = run("verify", "--drill", "--json")
    assert done.code == 0, done.err
    assert done.json["ok"]
    drills = {each["checkpoint"]["subject"]: each for each in done.json["drills"]}
    assert {name: each["tried"] for name, each in drills.items()} == {
        "state/plan": True,
        "state/notes": True,
        "container/s": False,
    }
    named = run("verify", "--drill", "state/plan")
    assert named.out.startswith("ok: ")
    assert "of state/plan (1 item came back" in named.out
    assert run("verify", "state/plan").code == 2
    both = run("verify", "--deep", "--drill", "--json")
    assert both.code == 0, both.err
    assert both.json["deep"]
    assert both.json["bytes_read"] > 0
    assert len(both.json["drills"]) == 3
    assert run("verify", "--deep", "--drill", "state/plan").out.count("ok: ") == 2
    flip(store)
    assert run("verify", "--deep", "--drill").code == 6
    failed = run("verify", "--drill")
    assert failed.code == 6
    assert "failed: " in failed.out
    assert "problem: " in failed.out
