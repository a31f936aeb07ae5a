"""A test that hangs fails, and what comes after it is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_an_asynchronous_one_whose_loop_kept_the_error(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\ntimeout = 2\n")
    (tmp_path / "test_some.py").write_text(HANGS)
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
