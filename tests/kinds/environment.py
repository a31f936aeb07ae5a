"""The environment that has the libraries."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".cache" / "kinds" / "bin" / "python"


def python() -> str:
    """The interpreter of `.cache/kinds`. Raises FileNotFoundError, with what makes it."""
    if not PYTHON.exists():
        raise FileNotFoundError(f"{PYTHON} is missing: make it with `scripts/setup-python kinds`")
    return str(PYTHON)


@functools.cache
def has(module: str) -> bool:
    """Whether that environment has a module, without importing it."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python(), "-c", code], check=False, timeout=60).returncode == 0
