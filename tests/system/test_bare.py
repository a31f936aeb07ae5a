"""The README's two commands on a bare Debian 12 with Node, which is made for it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the bare Debian is; some gigabytes that nobody wants to keep."""
    place = tmp_path_factory.mktemp("bare")
    yield place
    shutil.rmtree(place)


def try_bare(repository: Path, *arguments: str | Path) -> str:
    done = subprocess.run(
        [repository / "scripts" / "try-bare", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_make_run_works_where_nothing_is_installed(folder: Path, repository: Path) -> None:
    said = try_bare(repository, folder)
    assert "as root and as a user without rights" in said
    # As root, the engines are there and work; without rights, what needs none does.
    as_root, _, as_someone = said.partition("make run as someone")
    assert "whole processes are frozen" in as_root
    assert "yes  session" in as_someone
    for one in (as_root, as_someone):
        assert "/status: ok" in one
        assert "dashboard: built" in one
        assert "/execute: answered" in one


def test_the_tests_can_be_set_up_there(folder: Path, repository: Path) -> None:
    said = try_bare(repository, folder, "--tests")
    assert "the tests can be set up and run on a bare Debian 12" in said


@pytest.mark.timeout(7200)
def test_make_test_passes_there(folder: Path, repository: Path) -> None:
    """All of it; only checkpoints of other Python versions cannot be opened on a Debian 12, and no
    registry need have torch."""
    said = try_bare(repository, folder, "make test")
    assert re.search(r"^=+ \d+ passed", said, re.MULTILINE), said[-4000:]
    skipped = re.findall(r"^SKIPPED .*", said, re.MULTILINE)
    assert skipped
    known = re.compile(r"Python 3\.1[23] is not here|torch is tried when there")
    assert all(map(known.search, skipped)), skipped
