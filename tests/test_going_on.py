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


@pytest.mark.parametrize("tests", [HANGS, FAILS], ids=["hangs", "fails"])
def test_of_two_asynchronous_ones_one_passes(tests: str, tmp_path: Path, repository: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\ntimeout = 2\n")
    (tmp_path / "test_some.py").write_text(tests)
    own = ("--basetemp", str(tmp_path / "own"))  # whose end is nobody else's
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", *own, str(tmp_path)],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout, done.stdout
