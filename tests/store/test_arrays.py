"""numpy comes when it is needed, and not before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast.store import Store
from holdfast.store.arrays import distinct, np

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


@given(st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3)))
def test_distinct_values_are_those_of_numpy(values: list[int]) -> None:
    given_ = np.array(values, dtype=np.int64)
    assert distinct(given_).tolist() == np.unique(given_).tolist()


def test_distinct_values_of_a_table() -> None:
    found = distinct(np.array([[3, -1, 3], [7, -1, 0]], dtype=np.int32))
    assert found.tolist() == [-1, 0, 3, 7]
    assert found.dtype == np.int32


def test_saving_pages_loads_no_more_of_numpy_than_it_needs(place: Path, noise, tmp_path) -> None:
    (tmp_path / "data").write_bytes(noise(300_000))
    again = f"""
import sys
from pathlib import Path
from holdfast.store import open_store
with open_store({str(place)!r}) as store:
    for _ in range(2):
        with store.draft("state/x") as draft:
            draft.put("part", Path({str(tmp_path / "data")!r}), split="pages")
            draft.commit()
    store.map("state/x", "part").check()
    assert "numpy.ma" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", again], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@given(st.lists(st.integers(-3, 3), min_size=1), st.integers(0, 2000))
def test_many_values_are_ticked_off(few: list[int], spread: int) -> None:
    values = np.array([*few * 1100, spread], dtype=np.int32).reshape(-1, 1)
    found = distinct(values)
    assert found.tolist() == sorted({*few, spread})
    assert found.dtype == values.dtype
