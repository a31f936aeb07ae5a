"""Structure: JSON-like values as trees, so that a small change stores little."""

from __future__ import annotations

import math
import sys
from typing import Any

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from holdfast.model.errors import BadInput, Corrupt
from holdfast.store import Store
from holdfast.store.parts.contents import Named, named_by_chunk, walk
from holdfast.store.parts.structure import read_value
from holdfast.store.parts.trees import write_value

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**600), 2**600)
    | st.floats()
    | texts
    | st.binary()
)
long = st.lists(scalars, max_size=3).map(lambda few: few * 300)
wide = st.dictionaries(texts, scalars, max_size=3).map(
    lambda few: {f"{key}{i}": value for i in range(100) for key, value in few.items()}
)
values = st.recursive(
    scalars | long | wide,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(texts, inner, max_size=8),
    max_leaves=25,
)


class Shelf:
    """Chunks in a dict."""

    def __init__(self) -> None:
        self.chunks: dict[bytes, bytes] = {}

    def put(self, data: bytes) -> bytes:
        chunk = blake3(data).digest()
        self.chunks[chunk] = data
        return chunk

    def size(self) -> int:
        return sum(map(len, self.chunks.values()))


def same(a: Any, b: Any) -> bool:
    """Equal in type, order and value; a NaN is the same as a NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a, math.copysign(1, a)) == (
            b,
            math.copysign(1, b),
        )
    return bool(a == b)


@given(values)
@settings(max_examples=200)
def test_values_round_trip(value: Any) -> None:
    shelf = Shelf()
    root, size = write_value(value, shelf.put)
    assert same(read_value(root, shelf.chunks.__getitem__), value)
    found = walk(
        [Named("node", root)], lambda chunk: named_by_chunk(chunk.kind, shelf.chunks[chunk.id])
    )
    assert {chunk.id for chunk in found} == set(shelf.chunks)
    assert size > 0


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        "",
        b"",
        0,
        -(2**63),
        2**64 - 1,
        2**64,
        -(2**63) - 1,
        10**5000,
        math.nan,
        -math.inf,
        -0.0,
        "ü" * 300_000,
        "𝄞" * 400_000,
        b"\0\xff" * 500_000,
        {"b": 1, "a": 2, "": {"": []}},
        {str(i): i for i in reversed(range(5000))},
        [[i] * (i % 7) for i in range(3000)],
        {"$ref": "x", "$type": "y"},
    ],
    ids=lambda value: f"{type(value).__name__}-{sys.getsizeof(value)}",
)
def test_the_odd_ones_come_back_from_a_store(store: Store, save, value: Any) -> None:
    checkpoint = save(value, "structure")
    assert same(store.value(checkpoint, "part"), value)
    assert store.verify(deep=True).ok


def test_a_leaf_change_in_a_large_value_stores_little(store: Store, save) -> None:
    value = {
        f"group {i}": {f"item {j}": {"text": f"value {i} {j}", "score": i * j} for j in range(100)}
        for i in range(200)
    }
    first = save(value, "structure")
    value["group 77"]["item 33"]["score"] = -1
    second = save(value, "structure")
    assert first.size_bytes > 500_000
    assert second.stored_bytes < 16_000
    assert store.value(second, "part") == value


def test_appending_to_a_long_list_stores_little(save) -> None:
    value = [{"n": i, "text": f"line {i}"} for i in range(20_000)]
    save(value, "structure")
    value.append({"n": -1, "text": "one more"})
    assert save(value, "structure").stored_bytes < 16_000
    value.insert(0, {"n": -2, "text": "one more"})
    assert save(value, "structure").stored_bytes < 24_000


def test_the_order_of_keys_is_kept_and_counts_as_a_difference(store: Store, save) -> None:
    forward = save({"a": 1, "b": 2}, "structure")
    backward = save({"b": 2, "a": 1}, "structure")
    assert list(store.value(forward, "part")) == ["a", "b"]
    assert list(store.value(backward, "part")) == ["b", "a"]
    assert not store.diff(forward, backward).same


def test_reading_it_as_a_stream_gives_plain_msgpack(store: Store, save) -> None:
    value = {"a": [1, 2.5, None, "x"], "b": {"c": b"raw"}}
    data = store.read(save(value, "structure"), "part")
    assert msgspec.msgpack.decode(data) == value


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_has_a_limit_that_is_said(store: Store, save) -> None:
    assert store.value(save(nested(200), "structure"), "part") == nested(200)
    with pytest.raises(BadInput, match="nested"):
        save(nested(202), "structure")
    with pytest.raises(BadInput, match="nested"):
        save(nested(100_000), "structure")
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(BadInput, match="nested"):
        save(loop, "structure")


def test_deep_and_wide_values_come_back(store: Store, save) -> None:
    value: dict[str, Any] = {}
    for depth in range(199):
        value = {f"key {i}": f"sibling {depth} {i}" * 5 for i in range(60)} | {"inner": value}
    assert store.value(save(value, "structure"), "part") == value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({1: "a"}, "int"),
        ({None: "a"}, "NoneType"),
        ({"a": {("b",): 1}}, "tuple"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        ({"a": ["ok", "x\ud800y"]}, r"\$\.a\[1\]"),
        ({"a": (1, 2)}, "tuple"),
        ({1, 2}, "set"),
        (object(), "object"),
        ({"a": [0, 1j]}, r"complex at \$\.a\[1\]"),
        ({"k" * (17 * 2**20): 1}, "longer"),
    ],
    ids=range(11),
)
def test_what_is_not_json_like_is_refused_with_its_place(save, value: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        save(value, "structure")


def test_a_refused_value_leaves_the_draft_usable(store: Store) -> None:
    with store.draft("state/x") as draft:
        with pytest.raises(BadInput):
            draft.put("part", {1: 1}, "structure")
        draft.put("part", {"1": 1}, "structure")
        assert store.value(draft.commit(), "part") == {"1": 1}


@pytest.mark.parametrize(
    "node",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode(5),
        msgspec.msgpack.encode(["x", 1]),
        b"\x92\xa1m\x91\xc0",
        b"\x92\xa1\x80\x01",
        b"\x92\xa1v" + b"\x91" * 100_000,
        msgspec.msgpack.encode(["L", b"r" * 32, 5]),
        msgspec.msgpack.encode(["L", b"r" * 32, 0]),
        msgspec.msgpack.encode(["L", b"r" * 32, Ext(3, b"\x92\xa1l\x91\xc0"), None]),
        msgspec.msgpack.encode(["l", [1], Ext(3, b"\x92\xa1l\x91\xc0")]),
        msgspec.msgpack.encode(["v", Ext(3, b"\x92\xa1l\x91\xc0")]),
        msgspec.msgpack.encode(["l", [Ext(3, b"\x92\xa1x\x91\xc0")]]),
    ],
    ids=range(13),
)
def test_a_node_that_makes_no_sense_is_corrupt(node: bytes) -> None:
    with pytest.raises(Corrupt):
        read_value(bytes(32), lambda _: node)


@pytest.mark.parametrize("kind", ["v", "m", "l", "M", "L", "s", "b"])
@pytest.mark.parametrize(
    "content", [None, 5, "text", [1], [[1]], b"odd", {"a": 1}, b"\xff" * 32], ids=range(8)
)
def test_a_node_with_the_wrong_content_is_never_another_error(kind: str, content: Any) -> None:
    node = msgspec.msgpack.encode([kind, content])
    chunks = {b"root": node, b"\xff" * 32: b"\xff"}
    fits = (kind == "l" and isinstance(content, list)) or (kind == "b" and content == b"\xff" * 32)
    if kind == "v" or fits:
        read_value(b"root", chunks.__getitem__)
    else:
        with pytest.raises(Corrupt):
            read_value(b"root", chunks.__getitem__)


def test_a_node_may_stand_in_the_place_of_a_reference_to_it() -> None:
    run = msgspec.msgpack.encode(["l", [1, 2]])
    tail = msgspec.msgpack.encode(["l", [3, Ext(3, msgspec.msgpack.encode(["m", ["a", 4]]))]])
    root = msgspec.msgpack.encode(["L", b"r" * 32, Ext(3, tail)])
    assert read_value(b"root", {b"root": root, b"r" * 32: run}.__getitem__) == [1, 2, 3, {"a": 4}]
    deep = run
    for _ in range(5000):
        deep = msgspec.msgpack.encode(["l", [Ext(3, deep)]])
    with pytest.raises(Corrupt):
        read_value(b"root", {b"root": deep}.__getitem__)


def test_a_structure_that_contains_itself_is_corrupt() -> None:
    node = msgspec.msgpack.encode(["L", b"r" * 32])
    with pytest.raises(Corrupt, match="deeper"):
        read_value(b"r" * 32, lambda _: node)


def test_what_stands_in_two_places_becomes_two_values() -> None:
    chunks: dict[bytes, bytes] = {}

    def put(data: bytes) -> bytes:
        chunks[blake3(data).digest()] = data
        return blake3(data).digest()

    row = {"pad": "x" * 3000, "n": [1]}
    root, _ = write_value({"a": [row] * 3, "b": [row] * 3}, put)
    found = read_value(root, chunks.__getitem__)
    found["a"][0]["n"].append(2)
    assert [each["n"] for each in found["a"] + found["b"]] == [[1, 2], *[[1]] * 5]


def test_the_nodes_of_a_level_are_asked_for_at_once() -> None:
    chunks: dict[bytes, bytes] = {}

    def put(data: bytes) -> bytes:
        chunks[blake3(data).digest()] = data
        return blake3(data).digest()

    asked: list[int] = []

    def gather(wanted: list[bytes]) -> dict[bytes, bytes]:
        asked.append(len(wanted))
        return {each: chunks[each] for each in wanted}

    value = {"rows": [{"n": n, "pad": f"{n}" * 600} for n in range(300)], "long": "y" * 600_000}
    root, _ = write_value(value, put)
    assert read_value(root, chunks.__getitem__, gather) == value
    assert len(asked) <= 8
    assert sum(asked) == len(chunks)
