"""What the tests of the state level share: the two places a state can be kept in."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.store import open_store


@pytest.fixture(params=["files", "store"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Where the state is kept, as arguments for a StateManager."""
    if request.param == "files":
        yield {"directory": tmp_path / "sessions"}
    else:
        with open_store(str(tmp_path / "store")) as store:
            yield {"store": store}


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    if os.geteuid() != 0:
        pytest.fail("mounting a small disk needs root: run the tests as root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)
