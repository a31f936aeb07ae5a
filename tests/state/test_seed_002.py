"""The user's own example of a StateManager, as a script: the names and the flow hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from holdfast.state import StateManager
from holdfast.store import open_store

EXAMPLE = """
from functools import partial
from holdfast.state import StateManager
StateManager = partial(StateManager, app="edi")

state_manager = StateManager(session_id="session_12345")

state_manager.set_state("current_stage", "image_processing")
state_manager.set_state("progress", 0.75)
state_manager.set_state("image_path", "/path/to/working/image.jpg")
state_manager.set_state("workflow_step", "enhancement")

state_manager.checkpoint("workflow_transition")

state_manager.set_state("current_stage", "result_generation")
state_manager.set_state("progress", 0.9)
state_manager.checkpoint("completion_phase")
"""


def run(home: Path) -> None:
    environment = {**os.environ, "HOME": str(home), "HOLDFAST_HOME": str(home / ".holdfast")}
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLE], env=environment, check=True, capture_output=True
    )
    assert done.stdout == b""  # it logs instead of printing
    assert done.stderr == b""


def test_the_example(tmp_path: Path) -> None:
    run(tmp_path)
    files = sorted((tmp_path / ".edi" / "sessions").glob("*.json"))
    name = r"session_12345_checkpoint_\d{8}_\d{6}_\d{6}\.json"
    assert [bool(re.fullmatch(name, path.name)) for path in files] == [True, True]
    first, second = (json.loads(path.read_text("utf-8")) for path in files)
    for document in (first, second):
        assert {
            "session_id", "timestamp", "reason", "stage", "state_info", "parent_session"
        } <= document.keys()  # fmt: skip
        assert document["session_id"] == "session_12345"
        assert document["parent_session"] is None
    assert (first["reason"], first["stage"]) == ("workflow_transition", "image_processing")
    assert (second["reason"], second["stage"]) == ("completion_phase", "result_generation")
    assert first["state_info"] == {
        "current_stage": "image_processing",
        "progress": 0.75,
        "image_path": "/path/to/working/image.jpg",
        "workflow_step": "enhancement",
    }
    assert second["state_info"]["progress"] == 0.9
    assert first["timestamp"] < second["timestamp"]


def test_the_example_again_and_again_keeps_ten(tmp_path: Path) -> None:
    for _ in range(6):
        run(tmp_path)
    assert len(list((tmp_path / ".edi" / "sessions").glob("*.json"))) == 10


def test_the_example_on_a_store(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "store")) as store:
        manager = StateManager(session_id="session_12345", store=store)
        manager.set_state("current_stage", "image_processing")
        manager.set_state("progress", 0.75)
        manager.checkpoint("workflow_transition")
        manager.set_state("current_stage", "result_generation")
        manager.set_state("progress", 0.9)
        manager.checkpoint("completion_phase")
    with open_store(str(tmp_path / "store")) as store:
        second, first = store.list(subject="state/session_12345")
        assert (first.reason, first.stage) == ("workflow_transition", "image_processing")
        assert (second.reason, second.stage) == ("completion_phase", "result_generation")
        loaded = StateManager.load("session_12345", store=store)
        assert loaded.state_data == {"current_stage": "result_generation", "progress": 0.9}
