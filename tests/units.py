"""systemd's own word about a unit."""

from __future__ import annotations

import subprocess
from pathlib import Path


def verify(unit: Path) -> None:
    """Fails with what systemd has to say about the unit, or about what lies beside it in `.d`."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert unit.name not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
