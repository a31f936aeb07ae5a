"""Plain data: exact round trips, and nothing else gets through."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import Corrupt
from holdfast.protocol.values import NotPlain, decode_plain, encode_plain

hashable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary() | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
plain = st.recursive(
    hashable,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(hashable, inner, max_size=4)
        | st.sets(hashable, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=20,
)


def same(a: object, b: object) -> bool:
    """Equal, with the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, float) and isinstance(b, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return a == b


@given(plain)
def test_round_trip(value: object) -> None:
    assert same(decode_plain(encode_plain(value)), value)


class Subclass(dict[str, int]):
    """Not plain: it may behave in its own way."""


@pytest.mark.parametrize("value", [object(), len, Subclass(), [range(3)], {"a": {1: object()}}])
def test_only_plain_data(value: object) -> None:
    with pytest.raises(NotPlain):
        encode_plain(value)


def test_cycles_and_depth() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(NotPlain):
        encode_plain(cycle)


def test_size_limit() -> None:
    with pytest.raises(NotPlain):
        encode_plain("x" * 100, limit=10)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc7\x02\x63\x90\x90", b"\xc7\x01\x06\x01", b"\xc7\x03\x02\x91\x91\x01", b"\xd4\x04x"],
)
def test_corrupt_data_is_refused(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_plain(data)
