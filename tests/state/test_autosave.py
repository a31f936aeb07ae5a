"""Autosave: at intervals, at exit, and before a signal ends the process. With real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import BadInput, NotFound
from holdfast.state import StateManager

BEGIN = """
import os, signal, sys, threading, time
from holdfast.state import StateManager
manager = StateManager("s", directory=sys.argv[1])
"""


def process(directory: Path, code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BEGIN + code, str(directory)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(running: subprocess.Popen[str], line: str) -> None:
    assert running.stdout
    assert running.stdout.readline() == line + "\n"


def soon(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def saved(kept: dict[str, Any]) -> dict[str, Any]:
    try:
        return StateManager.load("s", **kept).state_data
    except NotFound:
        return {}


def test_at_intervals(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    with manager.autosave(0.05):
        manager.set_state("n", 1)
        soon(lambda: saved(kept) == {"n": 1})
        manager.set_state("n", 2)
        soon(lambda: saved(kept) == {"n": 2})
        manager.set_state("n", 3)
    assert saved(kept) == {"n": 3}
    manager.set_state("n", 4)
    time.sleep(0.2)
    assert saved(kept) == {"n": 3}, "it has been stopped"
    assert manager.list_checkpoints() == [], "these are no checkpoints"


def test_what_was_saved_later_is_not_replaced_by_what_was_taken_before(
    kept: dict[str, Any],
) -> None:
    """By itself means in another thread: it took the state, and then the session went back."""
    manager = StateManager("s", **kept)
    for step in (1, 2):
        manager.set_state("step", step)
        manager.checkpoint()
    late = manager.begin_save(only_changes=True)
    manager.rollback()
    late()
    assert saved(kept) == {"step": 1}
    late = manager.begin_save()
    manager.set_state("step", 3)
    manager.checkpoint()
    late()
    assert saved(kept) == {"step": 3}
    first = manager.begin_save()
    manager.set_state("step", 4)
    second = manager.begin_save()
    second()
    first()
    assert saved(kept) == {"step": 4}
    manager.set_state("step", 5)
    first, manager.state_data["step"] = manager.begin_save(), 6
    second = manager.begin_save()
    first()
    second()
    assert saved(kept) == {"step": 6}


def test_a_checkpoint_that_is_written_late_is_not_what_is_loaded(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.set_state("step", 1)
    base = manager.checkpoint()
    late = manager.begin_checkpoint("late")
    manager.set_state("step", 2)
    manager.save_state()
    assert late().reason == "late"  # it is there, but what was saved after it was taken counts
    assert saved(kept) == {"step": 2}
    first = manager.begin_checkpoint("first")
    manager.set_state("step", 3)
    second = manager.begin_checkpoint("second")
    second()
    first()
    assert saved(kept) == {"step": 3}
    late = manager.begin_checkpoint("late again")
    manager.rollback(base)
    late()
    assert saved(kept) == manager.state_data == {"step": 1}
    manager.set_state("step", 4)
    manager.checkpoint()
    assert saved(kept) == {"step": 4}


def test_a_state_that_was_saved_before_a_checkpoint_is_saved_again(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)

    def save(step: int) -> None:
        manager.set_state("step", step)
        manager.begin_save(only_changes=True)()

    save(1)
    manager.set_state("step", 2)
    made = manager.checkpoint()
    save(1)
    assert saved(kept) == {"step": 1}
    manager.rollback(made)
    save(1)
    assert saved(kept) == {"step": 1}


def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path)
    manager.set_state("n", 1)
    with manager.autosave(0.02):
        soon((tmp_path / "s.json").exists)
        before = (tmp_path / "s.json").stat()
        time.sleep(0.3)
        assert (tmp_path / "s.json").stat().st_mtime_ns == before.st_mtime_ns


def test_what_cannot_be_saved_is_logged_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = StateManager("s", directory=tmp_path)
    manager.set_state("bad", object())
    with manager.autosave(0.02):
        soon(lambda: "could not be saved" in caplog.text)
        manager.set_state("bad", 1)
        soon(lambda: saved({"directory": tmp_path}) == {"bad": 1})


def test_at_exit(tmp_path: Path) -> None:
    running = process(tmp_path, "manager.autosave(1000)\nmanager.set_state('n', 7)\n")
    assert running.wait(20) == 0
    assert saved({"directory": tmp_path}) == {"n": 7}


def test_at_exit_by_an_exception(tmp_path: Path) -> None:
    code = "manager.autosave(1000)\nmanager.set_state('n', 7)\nraise SystemExit(3)\n"
    assert process(tmp_path, code).wait(20) == 3
    assert saved({"directory": tmp_path}) == {"n": 7}


def test_before_sigterm_ends_the_process(tmp_path: Path) -> None:
    code = "manager.autosave(1000)\nmanager.set_state('n', 7)\nprint('ready', flush=True)\n"
    running = process(tmp_path, code + "time.sleep(60)")
    said(running, "ready")
    running.terminate()
    assert running.wait(20) == -signal.SIGTERM, "it ends as it would have"
    assert saved({"directory": tmp_path}) == {"n": 7}


def test_sigterm_in_the_middle_of_checkpoints(tmp_path: Path) -> None:
    """The handler comes at any moment of a save, and never waits for itself."""
    code = """
manager.autosave(1000)
manager.set_state("filling", "x" * 200_000)
print("ready", flush=True)
n = 0
while True:
    n += 1
    manager.set_state("n", n)
    manager.checkpoint()
    print(n, flush=True)
"""
    for pause in (0.0, 0.01, 0.03, 0.07, 0.15):
        directory = tmp_path / str(pause)
        running = process(directory, code)
        said(running, "ready")
        time.sleep(pause)
        running.terminate()
        output, _ = running.communicate(timeout=20)
        assert running.returncode == -signal.SIGTERM
        acknowledged = [0, *map(int, output.split())][-1]
        assert saved({"directory": directory}).get("n", 0) >= acknowledged


def test_a_handler_of_ones_own_has_its_turn(tmp_path: Path) -> None:
    code = """
signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
saving = manager.autosave(1000)
manager.set_state("n", 1)
print("ready", flush=True)
for line in sys.stdin:
    manager.set_state("n", int(line))
    print("set", flush=True)
"""
    running = process(tmp_path, code)
    said(running, "ready")
    assert running.stdin
    for n in (2, 3):  # also the second time
        running.stdin.write(f"{n}\n")
        running.stdin.flush()
        said(running, "set")
        running.terminate()
        said(running, "mine")
        assert saved({"directory": tmp_path}) == {"n": n}
    running.stdin.close()
    assert running.wait(20) == 0


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    code = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
manager.autosave(1000)
manager.set_state("n", 1)
print("ready", flush=True)
sys.stdin.read()
"""
    running = process(tmp_path, code)
    said(running, "ready")
    running.terminate()
    soon(lambda: saved({"directory": tmp_path}) == {"n": 1})
    running.communicate("", timeout=20)
    assert running.returncode == 0


def test_a_forked_child_saves_nothing_for_its_parent(tmp_path: Path) -> None:
    code = """
manager.autosave(1000)
manager.set_state("who", "parent")
child = os.fork()
if not child:
    manager.set_state("who", "child")
    sys.exit(0)
os.waitpid(child, 0)
from holdfast.model.errors import NotFound
try:
    print(StateManager.load("s", directory=sys.argv[1]).state_data)
except NotFound:
    print("nothing", flush=True)
second = os.fork()
if not second:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
print(os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]), flush=True)
"""
    running = process(tmp_path, code)
    output, _ = running.communicate(timeout=30)
    assert output.split() == ["nothing", str(-signal.SIGTERM)]
    assert saved({"directory": tmp_path}) == {"who": "parent"}


def test_outside_the_main_thread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = StateManager("s", directory=tmp_path)
    manager.set_state("n", 1)
    before = signal.getsignal(signal.SIGTERM)

    def work() -> None:
        manager.autosave(1000).stop()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "SIGTERM will not be noticed" in caplog.text
    assert signal.getsignal(signal.SIGTERM) is before
    assert saved({"directory": tmp_path}) == {"n": 1}


def test_stopping_gives_the_signal_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    saving = StateManager("s", directory=tmp_path).autosave(1000)
    assert signal.getsignal(signal.SIGTERM) != before
    saving.stop()
    saving.stop()
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf"), "5", None, True])
def test_impossible_intervals(tmp_path: Path, interval: Any) -> None:
    with pytest.raises(BadInput):
        StateManager("s", directory=tmp_path).autosave(interval)


BROKEN = """
from dataclasses import dataclass

@dataclass
class Broken:
    n: int = 1
    def __getattribute__(self, name):
        if name == "n" and broken:
            raise failure
        return object.__getattribute__(self, name)

broken = False
failure = {failure}
manager.set_state("value", Broken())
manager.set_state("n", 1)
manager.autosave(0.05)
"""


@pytest.mark.parametrize("failure", ["ValueError('no')", "MemoryError()", "SystemExit(3)"])
def test_sigterm_ends_the_process_whatever_saving_raises(tmp_path: Path, failure: str) -> None:
    code = BROKEN.replace("{failure}", failure) + "broken = True\nprint('ready', flush=True)\n"
    running = process(
        tmp_path, code + "time.sleep(0.5)\nprint('tried', flush=True)\ntime.sleep(60)"
    )
    said(running, "ready")
    said(running, "tried")
    running.terminate()
    assert running.wait(20) == -signal.SIGTERM


def test_autosave_goes_on_after_an_applications_error(tmp_path: Path) -> None:
    code = (
        BROKEN.replace("{failure}", "ValueError('no')")
        + """
broken = True
time.sleep(0.3)
broken = False
manager.set_state("n", 2)
print("mended", flush=True)
time.sleep(60)
"""
    )
    running = process(tmp_path, code)
    said(running, "mended")

    def n() -> object:
        found = [json.loads(path.read_text()) for path in tmp_path.glob("s.json")]
        return found[0]["state_info"]["n"] if found else None

    soon(lambda: n() == 2)
    running.terminate()
    assert running.wait(20) == -signal.SIGTERM


def test_sigterm_is_noticed_by_a_sleeping_process(tmp_path: Path) -> None:
    """The handler asks for a save, and the save may be over before the main thread sleeps again."""
    for attempt in range(12):
        directory = tmp_path / str(attempt)
        code = "manager.set_state('n', 1)\nmanager.autosave(0.05)\ntime.sleep(100)\n"
        running = process(directory, code)
        soon(lambda directory=directory: (directory / "s.json").exists())
        running.terminate()
        assert running.wait(20) == -signal.SIGTERM
