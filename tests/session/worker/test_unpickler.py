"""Records that are read where they are, and what the collector then thinks of them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import sync
from holdfast.session.worker.unpickler import View
from holdfast.store import Store, open_store

values = st.recursive(
    st.none() | st.integers() | st.text() | st.binary(max_size=300) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values, st.integers(0, 5))
def test_a_view_is_read_as_a_file_is(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol) + pickle.dumps("behind", protocol)
    file = View(memoryview(data))
    assert pickle.Unpickler(file).load() == value  # type: ignore[arg-type]
    assert pickle.Unpickler(file).load() == "behind"  # type: ignore[arg-type]
    assert file.read() == b"" == file.readline()


@pytest.mark.parametrize(
    "value", [b"b" * 300_000, bytearray(300_000), ["x" * 99] * 9000, "n" * 700]
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_large_ones_too(value: Any, protocol: int) -> None:
    data = memoryview(pickle.dumps(value, protocol))
    assert pickle.Unpickler(View(data)).load() == value  # type: ignore[arg-type]
    for end in (0, 1, len(data) // 2, len(data) - 1):
        with pytest.raises((EOFError, pickle.UnpicklingError)):
            pickle.Unpickler(View(data[:end])).load()  # type: ignore[arg-type]


OLD = "import gc; any(each is many for each in gc.get_objects(2))"


@pytest.fixture
def place(tmp_path: Any) -> Any:
    with open_store(tmp_path / "store") as store:
        yield store


def test_what_was_brought_back_is_old(place: Store) -> None:
    with sync.Session("old", store=place) as session:
        session.execute("many = [[n, str(n)] for n in range(60_000)]", check=True)
        session.checkpoint()
    with sync.Session.resume("old", store=place) as session:
        assert session.execute(OLD, check=True).value is True
        assert session.execute("gc.isenabled(), gc.get_freeze_count()").value == (True, 0)
        assert session.execute("many[59_999]", check=True).value == [59_999, "59999"]
        # What a session has frozen itself, it keeps.
        session.execute("gc.freeze(); frozen = gc.get_freeze_count()", check=True)
        session.restore()
        assert session.execute("import gc; gc.get_freeze_count() > 0", check=True).value is True
