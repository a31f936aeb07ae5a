"""Whatever a test does, those after it are run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HANGS = """
import asyncio, time

async def test_that_hangs():
    async def busy():
        while True:
            time.sleep(0.5)  # whatever is raised here is kept by the task
            await asyncio.sleep(0)
    beside = asyncio.create_task(busy())
    await asyncio.Event().wait()

async def test_afterwards():
    await asyncio.sleep(0)
"""

FAILS = """
import asyncio, gc

async def unseen():
    itself = asyncio.current_task()  # so that it is there until it is collected
    raise ValueError((1 + 2) / 0)

async def test_that_fails():
    gc.collect()
    gc.disable()
    unseens = [asyncio.create_task(unseen()) for _ in range(60)]
    await asyncio.sleep(0.01)
    del unseens
    gc.enable()
    assert [1, 2] == [3]

async def test_afterwards():
    await asyncio.sleep(0)
"""


NEVER_ENDS = """
import time, pytest
from tests import conftest

conftest._TO_END = 1.0

@pytest.fixture
def clinging():
    yield
    while True:
        try:
            time.sleep(60)
        except BaseException:  # as somebody does who waits for what never comes
            continue

def test_that_never_ends(clinging):
    pass

def test_afterwards():
    pass
"""


def run(
    tests: str, folder: Path, repository: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\ntimeout = 8\n")
    (folder / "test_some.py").write_text(tests)
    own = ("--basetemp", str(folder / "own"))  # whose end is nobody else's
    words = ["-m", "pytest", "-q", "-p", "tests.conftest", *own, *options, str(folder)]
    return subprocess.run(
        [sys.executable, *words], cwd=repository, capture_output=True, text=True, timeout=100
    )


def test_one_that_never_ends_takes_its_worker_along_and_nothing_else(
    tmp_path: Path, repository: Path
) -> None:
    done = run(NEVER_ENDS, tmp_path, repository, "-n", "1", "--max-worker-restart", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    # Its worker is lost in its end; both calls were good.
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    assert "in clinging" in done.stderr  # where it stood


@pytest.mark.parametrize("tests", [HANGS, FAILS], ids=["hangs", "fails"])
def test_of_two_asynchronous_ones_one_passes(tests: str, tmp_path: Path, repository: Path) -> None:
    done = run(tests, tmp_path, repository)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout, done.stdout
