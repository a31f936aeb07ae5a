"""The image of deploy/Dockerfile: it is built, and its server is used as the guide says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


def test_it_can_be_built_and_keeps_a_sandbox_across_a_restart(
    repository: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "image"
    try:
        done = subprocess.run(
            [repository / "scripts" / "try-image", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout.splitlines() == [
            "holdfast 0.1.0",
            "/status: ok",
            "dashboard: built",
            "sandbox: kept",
        ]
    finally:
        shutil.rmtree(folder)  # some gigabytes that nobody wants to keep
