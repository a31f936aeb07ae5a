"""Whoever has had enough of waiting does not wait in the end, either."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.testing.processes import running
from holdfast.testing.stage import Stage

HANGS = """
import pathlib, time
def hang(note, begun):
    note({"begun": True})
    pathlib.Path(begun).touch()
    while True:
        time.sleep(0.05)
"""


class Enough(BaseException):
    """What a test gets whose time is up."""


@contextmanager
def patience(seconds: float, begun: Path) -> Iterator[None]:
    """Raises once, as pytest-timeout does; the block has to end after that by itself. It has so
    many seconds from when it says, by a file, that it has come to where it waits."""

    def raises(*_: object) -> None:
        raise Enough

    before = signal.signal(signal.SIGUSR1, raises)
    began = time.monotonic()
    try:
        script = f"while [ ! -e {begun} ]; do sleep 0.02; done; sleep {seconds}; kill -USR1 $PPID"
        with running(["sh", "-c", script]):
            yield
        pytest.fail("it did not wait")
    except Enough:
        assert time.monotonic() - began < 60
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_process_that_does_not_end(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with patience(0.2, begun), running(["sleep", "1000"]) as process:
        begun.touch()
        process.wait()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("faults", [[], ["fsync:error=EIO:when=1"]], ids=["plain", "traced"])
def test_an_act_that_does_not_end(tmp_path: Path, faults: list[str]) -> None:
    (tmp_path / "hanging_acts.py").write_text(HANGS)
    begun = tmp_path / "begun"
    with patience(2, begun), Stage("hanging_acts", tmp_path) as stage:
        stage.perform("hang", str(begun), faults=faults)
