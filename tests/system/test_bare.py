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


def test_the_long_tests_can_be_set_up_there(folder: Path, repository: Path) -> None:
    """With the engines that only they need; and again, when there is nothing left to do."""
    versions = "podman --version && dockerd --version"
    set_up = f"make setup-soak && echo once more: && make setup-soak && {versions}"
    said = try_bare(repository, folder, set_up)
    assert re.search(r"^once more:\npodman version .*\nDocker version ", said, re.MULTILINE), said


@pytest.mark.timeout(5400)
def test_make_bench_works_there(folder: Path, repository: Path) -> None:
    """One round of each, with all peers; what the numbers are says nothing on a busy machine."""
    said = try_bare(repository, folder, "make bench ARGS='--rounds 1' && cat build/benchmarks.md")
    for name in ("store", "state", "session", "container", "sandbox"):
        assert f"benchmarks/{name}.py --rounds 1" in said
        assert f"written to build/benchmarks/{name}.md" in said
    for peer in ("restic", "borg", "kishu"):
        assert peer in said.partition("benchmarks/gather.py")[2]


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
