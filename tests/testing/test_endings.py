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
import time
def hang(note):
    note({"begun": True})
    while True:
        time.sleep(0.05)
"""


class Enough(BaseException):
    """What a test gets whose time is up."""


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raises once, as pytest-timeout does; the block has to end after that by itself."""

    def raises(*_: object) -> None:
        raise Enough

    before = signal.signal(signal.SIGUSR1, raises)
    began = time.monotonic()
    try:
        with running(["sh", "-c", f"sleep {seconds}; kill -USR1 $PPID"]):
            yield
        pytest.fail("it did not wait")
    except Enough:
        assert time.monotonic() - began < 60
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_process_that_does_not_end() -> None:
    with patience(0.2), running(["sleep", "1000"]) as process:
        process.wait()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("faults", [[], ["fsync:error=EIO:when=1"]], ids=["plain", "traced"])
def test_an_act_that_does_not_end(tmp_path: Path, faults: list[str]) -> None:
    (tmp_path / "hanging_acts.py").write_text(HANGS)
    with patience(2), Stage("hanging_acts", tmp_path) as stage:
        stage.perform("hang", faults=faults)
