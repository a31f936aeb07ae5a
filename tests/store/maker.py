"""The script that made the committed store, as a module: what it computes must come back."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

DATA = Path(__file__).resolve().parents[1] / "data"


def load_maker() -> ModuleType:
    """It stands beside the data, and is no package."""
    spec = importlib.util.spec_from_file_location("make_store_v1", DATA / "make_store_v1.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
