from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from holdfast.runtime.command import Outcome, run


def test_a_command_that_ends_well() -> None:
    outcome = run(("sh", "-c", "echo out; echo err >&2"), seconds=10)
    assert outcome.succeeded
    assert (outcome.stdout, outcome.stderr) == ("out\n", "err\n")


def test_the_reason_is_what_the_program_said_last() -> None:
    outcome = run(("sh", "-c", "echo first >&2; echo 'no such device' >&2; exit 3"), seconds=10)
    assert not outcome.succeeded
    assert outcome.reason() == "ended with code 3: no such device"


def test_a_program_that_is_not_there() -> None:
    outcome = run(("/nonexistent/engine",), seconds=10)
    assert outcome.code is None
    assert "could not be started" in outcome.reason()


def test_a_command_that_hangs_is_killed_with_its_children() -> None:
    started = time.monotonic()
    outcome = run(("sh", "-c", "sleep 60 & sleep 60; true"), seconds=0.3)
    assert time.monotonic() - started < 30
    assert outcome.code is None
    assert "0.3 s" in outcome.reason()


def test_a_child_left_behind_does_not_keep_us_when_nothing_is_captured(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    outcome = run(("sh", "-c", f"sleep 100 & echo $! > {note}"), seconds=30, capture=False)
    child = int(note.read_text())
    try:
        assert outcome.succeeded
        assert Path(f"/proc/{child}").exists()  # and nobody has waited for it
    finally:
        os.kill(child, signal.SIGKILL)


def test_silence_still_gives_a_reason() -> None:
    assert Outcome(("x",), 7, "", "").reason() == "ended with code 7"
