"""Long commands end within their limits, with everything they started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.errors import NotFound
from holdfast.oci.engine import EngineFailed, Limits, Runc, kill_tree, working_in
from holdfast.oci.state import Process
from holdfast.testing.processes import running
from holdfast.testing.waiting import eventually


@pytest.fixture
def shell() -> Runc:
    """A shell in the place of runc: what matters here is how it is watched."""
    return Runc((), {**os.environ, "HOLDFAST_RUNC": "/bin/sh"})


def test_there_must_be_a_runc() -> None:
    with pytest.raises(NotFound, match="no runc"):
        Runc((), {"HOLDFAST_RUNC": "/nowhere/runc", "PATH": ""})


def test_only_runc_says_absent(tmp_path: Path) -> None:
    assert Runc(("--root", str(tmp_path)), os.environ).status("nowhere") == "absent"
    broken = tmp_path / "held"
    broken.mkdir()
    (broken / "state.json").write_text("{")
    with pytest.raises(EngineFailed, match="runc state held ended with code 1"):
        Runc(("--root", str(tmp_path)), os.environ).status("held")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo input/output error >&2; exit 1", "input/output error"),
        ("kill -9 $$", "code -9"),
        ("echo '{}'", "printed no state"),
        ("echo '[1]'", "printed no state"),
        ("echo running", "printed no state"),
    ],
)
def test_unknown_status_is_an_error(script: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=told):
        failing_runc(tmp_path, script).status("held")


def failing_runc(folder: Path, script: str) -> Runc:
    program = folder / "runc"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Runc((), {**os.environ, "HOLDFAST_RUNC": str(program)})


def supervised(
    shell: Runc, script: str, limits: Limits, ready: Callable[[], bool] = lambda: True
) -> list[Process]:
    """Its time runs from when it is ready."""
    seen: list[Process] = []

    def started(process: Process) -> None:
        seen.append(process)
        eventually(ready, "it is ready")

    shell.supervise(["-c", script], limits, streams=False, started=started)
    return seen


def test_a_command_that_ends_in_time(shell: Runc, tmp_path: Path) -> None:
    (process,) = supervised(shell, "sleep .1", Limits(10, tmp_path, 1000))
    assert not process.alive


def test_a_command_that_fails_says_what_criu_said(shell: Runc, tmp_path: Path) -> None:
    script = f"echo '(00.1) Error (criu/x.c:1): no luck' > {tmp_path}/dump.log; exit 3"
    with pytest.raises(EngineFailed, match=r"code 3: .*no luck"):
        supervised(shell, script, Limits(10, tmp_path, 1000))


def test_the_deadline(shell: Runc, tmp_path: Path) -> None:
    """And what it started in sessions of its own does not survive it."""
    script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; sleep 100; true' & sleep 100; true"
    pid = tmp_path / "pid"
    began = time.monotonic()
    with pytest.raises(EngineFailed, match=r"did not end within 0\.7 s"):
        supervised(
            shell,
            script,
            Limits(0.7, tmp_path, 1000),
            lambda: pid.exists() and pid.read_text().endswith("\n"),
        )
    assert time.monotonic() - began < 20
    escaped = int(pid.read_text())
    eventually(lambda: Process.of(escaped) is None, "the other session is gone, too")


def test_the_log_cap(shell: Runc, tmp_path: Path) -> None:
    script = f"while :; do echo xxxxxxxxxxxxxxxxxxxxxxxx; done > {tmp_path}/restore.log"
    with pytest.raises(EngineFailed, match="bytes of log"):
        supervised(shell, script, Limits(60, tmp_path, 1_000_000))


def test_killing_what_is_gone_harms_nobody() -> None:
    with running(["sleep", "60"]) as bystander:
        try:
            gone = subprocess.Popen(["true"])
            gone.wait()
            for pid in (gone.pid, 2**22 - 1):
                kill_tree(pid)
                assert bystander.poll() is None
        finally:
            kill_tree(bystander.pid)
    assert bystander.returncode == -signal.SIGKILL


def test_an_engine_is_known_by_the_folder_it_works_in(tmp_path: Path) -> None:
    staged = tmp_path / "staged"
    assert working_in([str(staged)]) is None
    words = ["sh", "-c", "sleep 60; :", "runc", "--image-path", f"{staged}/memory"]
    with running(words) as process:
        try:
            eventually(lambda: working_in([str(staged)]) is not None, "it is there")
            found = working_in([str(tmp_path / "other"), str(staged)])
            assert found is not None
            assert found.pid == process.pid
            assert working_in([str(tmp_path / "stag")]) is None  # not by the beginning of a name
            assert working_in([]) is None
        finally:
            kill_tree(process.pid)
    # What it had begun has its words until it is another program, or is gone.
    eventually(lambda: working_in([str(staged)]) is None, "nobody works there any more")
