"""Processes that are killed at any moment, whatever they do: nothing saved is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.state import StateManager
from holdfast.store import open_store

# Says what state there will be before each act, and when the act was acknowledged.
WORKER = """
import sys
from holdfast.state import StateManager
from holdfast.store import open_store

kind, place, n, auto = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "auto"
kept = {"directory": place} if kind == "files" else {"store": open_store(place)}
begin = StateManager.load if n else StateManager
manager = begin("s", checkpoint_limit=100_000, **kept)
saving = manager.autosave(0.01, signals=False) if auto else None

def say(*words):
    print(*words, flush=True)

def keep():
    say("doing", n)
    made = manager.checkpoint(str(n))
    say("kept", made.id, n)
    known[made.id] = n
    return made

known = {}
say("ready")
while True:
    n += 1
    say("doing", n)
    manager.state_data.update(step=n, filling=["x" * 2000, n] * 20)
    match n % 5:
        case 0:
            manager.save_state()
            say("saved", n)
        case 1:
            keep()
        case 2:
            made = keep()
            if made.parent in known:
                say("doing", known[made.parent])
                back = manager.rollback(made.parent)
                say("kept", back.id, manager.get_state("step"))
        case 3:
            manager.fork(f"fork-{n}")
            say("forked", n)
        case 4 if n > 5:
            say("saw", StateManager.load("s", **kept).get_state("step"))
"""


def run(kind: str, place: Path, begin: int, auto: bool, seconds: float) -> list[list[str]]:
    """What a worker said before it was killed; its last word may be cut off."""
    command = [sys.executable, "-c", WORKER, kind, place, str(begin), "auto" if auto else "-"]
    return killed(command, "forked", seconds)


def killed(command: list[Any], word: str, seconds: float) -> list[list[str]]:
    """What a process says that is killed some seconds after it has first said that word."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    said = []
    while not (said and said[-1].startswith(word)):
        said.append(process.stdout.readline())
        assert said[-1], f"it ended after {said}"
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    said += process.communicate()[0].splitlines(keepends=True)
    return [line.split() for line in said if line.endswith("\n")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("auto", [False, True], ids=["asked", "autosave"])
@pytest.mark.parametrize("kind", ["files", "store"])
@pytest.mark.parametrize("rounds", [2, pytest.param(25, marks=pytest.mark.soak)])
def test_nothing_saved_is_lost(tmp_path: Path, kind: str, auto: bool, rounds: int) -> None:
    chance = random.Random(rounds)
    place = tmp_path / "place"
    kept: dict[str, int] = {}
    forks: set[int] = set()
    number = 0
    for _ in range(rounds):
        said = run(kind, place, number, auto, chance.uniform(0.0, 0.3))
        may_be = {number}  # the steps that the session may stand at
        for verb, *words in said:
            step = int(words[-1])
            if verb == "doing":
                may_be.add(step)
                number = max(number, step)
            elif verb == "forked":
                forks.add(step)
            elif not auto or verb == "kept":
                may_be = {step}
            if verb == "kept":
                kept[words[0]] = step
        with_it: dict[str, Any] = {"directory": place}
        if kind == "store":
            with_it = {"store": open_store(place)}
        check(with_it, kept, forks, may_be, number)
        if kind == "store":
            assert with_it["store"].verify(deep=True).ok
            with_it["store"].close()
    assert kept
    assert forks


def check(
    place: dict[str, Any], kept: dict[str, int], forks: set[int], may_be: set[int], number: int
) -> None:
    session = StateManager.load("s", checkpoint_limit=100_000, **place)
    assert session.state_data["step"] in may_be
    listed = {each.id: each for each in session.list_checkpoints()}
    assert listed.keys() >= kept.keys()
    for step in sorted(forks)[-20:]:
        fork = StateManager.load(f"fork-{step}", **place)
        assert fork.state_data["step"] == step
        assert fork.parent_session == "s"
    # Life goes on, and goes back to whatever was acknowledged.
    session.checkpoint("after")
    for checkpoint_id in [*list(kept)[-3:], *random.Random(number).choices(list(kept), k=3)]:
        session.rollback(checkpoint_id)
        assert session.state_data["step"] == kept[checkpoint_id]
        assert session.state_data["filling"][1] == kept[checkpoint_id]
    session.set_state("step", number)
    session.checkpoint("next")


SAVER = """
import sys
from langgraph.checkpoint.base import empty_checkpoint
from holdfast.integrations.langgraph import HoldfastSaver
saver = HoldfastSaver(sys.argv[1])
config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
n = int(sys.argv[2])
rows = [{"n": each, "text": "x" * 700} for each in range(n)]
print("ready", flush=True)
while True:
    rows = [*rows, {"n": n, "text": "x" * 700}]
    n += 1
    checkpoint = {**empty_checkpoint(), "channel_values": {"rows": rows}}
    config = saver.put(config, checkpoint, {"step": n}, {})
    print("put", checkpoint["id"], n, flush=True)
    saver.put_writes(config, [("rows", [n]), ("more", "y" * 700)], f"task-{n}")
    print("wrote", checkpoint["id"], n, flush=True)
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [2, pytest.param(25, marks=pytest.mark.soak)])
def test_nothing_that_the_saver_put_is_lost(tmp_path: Path, rounds: int) -> None:
    from holdfast.integrations.langgraph import HoldfastSaver

    chance = random.Random(rounds)
    number = 0
    put: dict[str, int] = {}
    wrote: dict[str, int] = {}
    for _ in range(rounds):
        command = [sys.executable, "-c", SAVER, tmp_path / "store", str(number)]
        for verb, checkpoint_id, step in killed(command, "wrote", chance.uniform(0.0, 0.3)):
            (put if verb == "put" else wrote)[checkpoint_id] = number = int(step)
        with open_store(tmp_path / "store") as store:
            saver = HoldfastSaver(store)
            for checkpoint_id, step in list(put.items())[-40:]:
                about = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
                found = saver.get_tuple({"configurable": about})
                assert found is not None
                rows = found.checkpoint["channel_values"]["rows"]
                assert [each["n"] for each in rows] == list(range(step))
                if checkpoint_id in wrote:
                    said = [(f"task-{step}", "rows", [step]), (f"task-{step}", "more", "y" * 700)]
                    assert found.pending_writes == said
            with store.draft("state/after") as draft:  # what was cut off is no longer at the end
                draft.put("x", b"y")
                draft.commit()
            assert store.verify(deep=True).ok
    assert put
    assert wrote
