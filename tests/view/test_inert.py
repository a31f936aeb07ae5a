"""Pickles as trees: nothing they name is imported or run, and no stream of bytes does harm."""

from __future__ import annotations

import collections
import contextlib
import io
import os
import pickle
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import Corrupt
from holdfast.view import inert
from holdfast.view.inert import Call, Members, Named, Pairs, Reference, read

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(-9, 9),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def plain(node: object) -> object:
    """A tree of plain data as the data itself."""
    if isinstance(node, Pairs):
        return {plain(key): plain(value) for key, value in node.items}
    if isinstance(node, list):
        return [plain(each) for each in node]
    if isinstance(node, tuple):
        return tuple(plain(each) for each in node)
    return node


@given(PLAIN, st.sampled_from([0, 2, 4, 5]))
def test_plain_data_is_what_it_was(value: object, protocol: int) -> None:
    if protocol < 3 and b"bytes" in pickle.dumps(type(value)):
        protocol = 4  # older ones have no bytes
    found = read(pickle.dumps(value, max(protocol, 3)))
    assert plain(found) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    with contextlib.suppress(Corrupt):
        read(data)


@given(st.data(), PLAIN)
def test_damaged_pickles_are_refused_or_read(data: st.DataObject, value: object) -> None:
    whole = bytearray(pickle.dumps(value))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Corrupt):
        read(bytes(whole))


class Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> object:
        return os.system, (f"touch {self.target}",)


def test_a_pickle_that_would_run_something_only_says_so(tmp_path: Path) -> None:
    target = tmp_path / "harm"
    found = read(pickle.dumps([Evil(target)]))
    assert isinstance(found, list)
    assert found[0] == Call(Named(os.system.__module__, "system"), (f"touch {target}",))
    assert not target.exists()


def test_nothing_is_imported() -> None:
    name = "antigravity"  # which opens a browser when it is imported
    assert read(b"c" + name.encode() + b"\nfly\n.") == Named(name, "fly")
    assert name not in sys.modules


class Point:
    def __init__(self) -> None:
        self.x = 1


def test_objects_keep_their_class_and_state() -> None:
    found = read(pickle.dumps(Point()))
    assert isinstance(found, Call)
    assert str(found.what).endswith("Point")
    assert isinstance(found.state, Pairs)
    assert found.state.get("x") == 1
    ordered = read(pickle.dumps(collections.OrderedDict(a=1)))
    assert isinstance(ordered, Call)
    assert read(pickle.dumps({1, 2}, 4)) == Members("set", [1, 2])


def test_what_stands_elsewhere_is_a_reference() -> None:
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: object) -> object:
            return ("object", "s1") if obj == "elsewhere" else None

    out = io.BytesIO()
    Pickler(out, 5).dump(["elsewhere"])
    assert read(out.getvalue()) == [Reference(("object", "s1"))]


def test_one_that_is_too_long_is_not_for_looking_at() -> None:
    with pytest.raises(Corrupt, match="too long"):
        read(pickle.dumps(list(range(inert.MOST_STEPS))))


class Losing(pickle.Pickler):
    """As a session's pickler does with a dict that loses a secret."""

    def persistent_id(self, obj: object) -> object:
        if isinstance(obj, dict):
            return ("filled", 0, ["user", "me", "n", 1])
        return ("secret", "password") if obj == "left out" else None


def test_a_dict_without_its_secrets_is_shown() -> None:
    file = io.BytesIO()
    Losing(file, 5).dump([{}, "left out"])
    shown, secret = read(file.getvalue())
    assert plain(shown) == {"user": "me", "n": 1}
    assert secret == Reference(("secret", "password"))
