"""Tests that run again with another process between any two of their steps: survival mode."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.survival.plugin import exceptions, is_of

LISTED = 29  # entries in exceptions.toml: this number only becomes smaller
SECONDS = 60

# Files all of whose tests have survived, but for the exceptions, and are quick enough for a share.
SHARE = {
    "session": [
        f"tests/session/test_{name}.py"
        for name in (
            "capture", "checkpoint", "circumstances", "dialogue", "execute", "line", "secrets",
            "seed_003", "variables",
        )
    ],
    "state": [
        f"tests/state/test_{name}.py"
        for name in (
            "async_manager", "documentation", "lineage", "manager", "registry", "rows", "secrets",
            "seed_002", "shelf", "stages", "versions",
        )
    ],
}  # fmt: skip
FOLDERS = {"session": ["tests/session"], "state": ["tests/state"]}


def survive(repository: Path, *arguments: str) -> str:
    """Run pytest with the plug-in, and give what it says. Fails when a test did."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    command = [
        sys.executable, "-m", "pytest", "-p", "tests.survival.plugin", "-q", "--tb=short",
        "-p", "no:cacheprovider", "-m", "not soak and not alone", *arguments,
    ]  # fmt: skip
    ran = subprocess.run(
        command, cwd=repository, env=environ, capture_output=True, text=True, check=False
    )
    again = " ".join(arguments)
    assert ran.returncode == 0, f"pytest {again}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def survived(said: str, level: str) -> int:
    """How many steps went through another process."""
    found = re.search(rf"survival, {level}: (\d+) survived", said)
    assert found, said
    return int(found[1])


@pytest.mark.timeout(400)
def test_some_tests_survive(repository: Path) -> None:
    """`HOLDFAST_SURVIVE_SEED` chooses the same ones again."""
    seed = os.environ.get("HOLDFAST_SURVIVE_SEED") or "7"
    print(f"HOLDFAST_SURVIVE_SEED={seed}")
    for level, files in SHARE.items():
        said = survive(
            repository, "--survive", level, "--survive-seed", seed,
            "--survive-seconds", str(SECONDS / len(SHARE)), *files,
        )  # fmt: skip
        print(said)
        assert survived(said, level) > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", FOLDERS)
def test_all_tests_survive(repository: Path, level: str) -> None:
    said = survive(repository, "--survive", level, *FOLDERS[level])
    print(said)
    assert survived(said, level) > 0


def test_the_list_of_exceptions_shrinks(repository: Path) -> None:
    listed = exceptions()
    assert len(listed) == LISTED, "fewer: lower LISTED; more: mend the test or the product"
    assert all(each["reason"] for each in listed)
    files = sorted({re.split("::|/[*]", each["test"])[0] for each in listed})
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", *files],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    tests = [line for line in collected.stdout.splitlines() if "::" in line]
    for each in listed:
        assert any(is_of(test, each["test"]) for test in tests), each["test"]
