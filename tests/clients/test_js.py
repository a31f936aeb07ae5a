"""The JavaScript client: its own checks and tests."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients.conftest import run


def test_it_is_clean_and_its_types_are_those_of_the_schema(client: Path) -> None:
    run(client, "npm", "run", "--silent", "check")
    run(client, "node", "scripts/types.mjs", "--check")


def test_its_own_tests_pass(client: Path) -> None:
    report = json.loads(run(client, "npx", "vitest", "run", "--reporter=json", "--silent"))
    assert report["numFailedTests"] == 0
    assert report["numPassedTests"] == report["numTotalTests"] >= 175


def test_the_lock_names_no_host(client: Path) -> None:
    lock = json.loads((client / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_the_readme_says_with_what_it_was_tried(client: Path) -> None:
    """The versions that the tests run; a new one is written down when it was tried."""
    packages = json.loads((client / "package-lock.json").read_text())["packages"]
    readme = (client / "README.md").read_text()
    for name in ("Bun", "Deno"):
        assert f"{name} {packages[f'node_modules/{name.lower()}']['version']}" in readme
