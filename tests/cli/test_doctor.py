from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import doctor
from holdfast.runtime.diagnosis import Diagnosis
from holdfast.runtime.finding import Finding, Status

HOLDFAST = Path(sys.executable).with_name("holdfast")


def run(*words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HOLDFAST, "doctor", *words],
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_for_programs() -> None:
    result = run("--json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["usable"] is True
    assert [level["level"] for level in answer["levels"]] == [
        *("state", "session", "sandbox", "container")
    ]
    extras = {each["name"] for each in answer["findings"] if each["name"].startswith("extra")}
    assert {"extra server", "extra s3", "extra jupyter", "extra mcp", "extra otel"} <= extras
    assert {"python", "space", "dirty pages", "runc", "criu", "runsc"} <= {
        finding["name"] for finding in answer["findings"]
    }
    assert result.stderr == ""


def test_for_people() -> None:
    result = run()
    assert result.returncode == 0, result.stderr
    now, _, tried = result.stdout.partition("What was tried")
    assert now.startswith("What can be frozen here\n")
    for level in ("state", "session", "sandbox", "container"):
        assert re.search(rf"^(yes|no) +{level}", now, re.MULTILINE)
    assert "runsc" in tried
    assert "trying" in result.stderr
    assert "trying" not in result.stdout


def test_what_is_missing_comes_with_its_command(tmp_path: Path) -> None:
    result = run(HOLDFAST_CRIU="/nonexistent/criu")
    assert result.returncode == 0, "sandboxes and sessions still work"
    assert "unset HOLDFAST_CRIU" in result.stdout


def test_a_home_that_cannot_be_written_leaves_nothing_usable() -> None:
    result = run("--json", HOLDFAST_HOME="/proc/holdfast")
    assert result.returncode == 5
    assert json.loads(result.stdout)["usable"] is False


@pytest.mark.parametrize("status", list(Status))
def test_every_status_can_be_shown(status: Status) -> None:
    diagnosis = Diagnosis((Finding("criu", status, "[bold]not markup[/bold]", mends="make setup"),))
    text = doctor.page(diagnosis)
    assert str(status) in text
    assert "[bold]not markup[/bold]" in text
    assert "make setup" in text
