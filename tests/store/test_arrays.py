"""numpy comes when it is needed, and not before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.store import Store
from holdfast.store.arrays import np

LOOK = """
import sys
from holdfast.store import open_store
with open_store(sys.argv[1]) as store:
    assert len(store.list()) == 2
    store.subjects(), store.history("state/x"), store.resolve("state/x~1"), store.pin("state/x~1")
    assert store.read("state/x", "part") == b"small"
    assert "numpy" not in sys.modules
    store.read("state/x~1", "part")
    assert "numpy" in sys.modules
"""


def test_looking_at_a_store_does_not_load_numpy(place: Path, store: Store, save, noise) -> None:
    save(noise(2_000_000), "pages")
    save(b"small")
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(place)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_it_is_numpy() -> None:
    import numpy

    assert np.ndarray is numpy.ndarray
    assert np.ndarray is numpy.ndarray  # the second time, too
