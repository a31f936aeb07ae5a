"""Trees: writing a value again costs what changed, and gives the same tree as writing it first."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import BadInput
from holdfast.store.parts.contents import Named, named_by_chunk, walk
from holdfast.store.parts.structure import check_value, read_value
from holdfast.store.parts.trees import Plain, Twig, write_tree
from holdfast.testing.strategies import values


class Shelf:
    """Chunks in a dict, and how many were put."""

    def __init__(self) -> None:
        self.chunks: dict[bytes, bytes] = {}
        self.puts = 0

    def put(self, data: bytes) -> bytes:
        chunk = blake3(data).digest()
        self.chunks[chunk] = data
        self.puts += 1
        return chunk


def wide(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Maps and lists that need several chunks."""
    some = st.integers(0, 60)
    return st.builds(lambda n, v: {f"key {i}": [v, "x" * 300] for i in range(n)}, some, inner) | (
        st.builds(lambda n, v: [{"at": i, "is": v, "pad": "y" * 90} for i in range(n)], some, inner)
    )


steps = st.lists(
    st.sampled_from(("set", "add", "drop", "insert", "swap", "same", "shrink")), max_size=6
)


def changed(value: Any, how: str, new: Any) -> Any:
    """The value with one small change, in containers of its own."""
    value = copy.deepcopy(value)
    if isinstance(value, dict):
        keys = list(value)
        if how in ("set", "swap") and keys:
            value[keys[len(keys) // 2]] = new
        elif how in ("add", "insert"):
            value[f"new {len(keys)}"] = new
        elif how == "drop" and keys:
            del value[keys[0]]
        elif how == "shrink":
            return dict(list(value.items())[:2])
    elif isinstance(value, list):
        if how == "set" and value:
            value[len(value) // 2] = new
        elif how == "add":
            value.append(new)
        elif how == "insert":
            value.insert(0, new)
        elif how == "drop" and value:
            del value[0]
        elif how == "swap" and len(value) > 1:
            value[0], value[-1] = value[-1], value[0]
        elif how == "shrink":
            return value[:2]
    elif how != "same":
        return new
    return value


@given(wide(values(6)) | values(12), steps, values(6), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_tree_depends_on_the_value_alone(
    value: Any, how: list[str], new: Any, plain: bool
) -> None:
    shelf = Shelf()
    last: Twig | None = None
    for step in ["same", *how]:
        value = changed(value, step, new)
        vouched = plain and check_value(value) == value  # nothing in it needs another form
        root, last = write_tree(Plain(value) if vouched else value, shelf.put, last)
        fresh = Shelf()
        again, tree = write_tree(value, fresh.put)
        assert again == root
        assert tree.size == last.size
        found = walk(
            [Named("node", root)], lambda chunk: named_by_chunk(chunk.kind, shelf.chunks[chunk.id])
        )
        assert set(last.chunks) == {chunk.id for chunk in found}
        assert read_value(root, shelf.chunks.__getitem__) == value
        assert last.build() == value


def test_a_conversation_takes_two_or_three_chunks_a_step() -> None:
    """The message, and the nodes above it, which stand in each other while they are small."""
    shelf, last, puts = Shelf(), None, []
    messages: list[Any] = []
    for step in range(300):
        messages = [*messages, {"id": step, "text": f"{step} " * 300}]
        before = shelf.puts
        root, last = write_tree({"state": {"messages": messages}}, shelf.put, last)
        puts.append(shelf.puts - before)
    assert read_value(root, shelf.chunks.__getitem__) == {"state": {"messages": messages}}
    assert sum(puts[8:]) < 3 * len(puts[8:])


def test_what_did_not_change_is_not_put_again() -> None:
    shelf = Shelf()
    state = {"messages": [{"id": i, "text": f"{i} " * 500} for i in range(300)], "step": 0}
    _, last = write_tree(state, shelf.put)
    before = shelf.puts
    _, same = write_tree(copy.deepcopy(state), shelf.put, last)
    assert same is last
    assert shelf.puts == before
    state["messages"].append({"id": 300, "text": "new " * 500})
    _, after = write_tree(state, shelf.put, last)
    assert shelf.puts - before < 10
    # A window that slides: every message stands one place further ahead.
    state["messages"] = state["messages"][1:]
    before = shelf.puts
    write_tree(state, shelf.put, after)
    assert shelf.puts - before < 20


def test_a_change_in_place_is_seen() -> None:
    shelf = Shelf()
    inner = {"n": 1, "pad": "x" * 2000}
    state = {"rows": [inner] * 5, "more": ["y" * 3000]}
    first, last = write_tree(state, shelf.put)
    inner["n"] = 2
    second, _ = write_tree(state, shelf.put, last)
    assert first != second
    assert read_value(second, shelf.chunks.__getitem__) == state
    assert last.build()["rows"][0]["n"] == 1, "what is remembered does not change with the value"


@pytest.mark.parametrize(
    ("old", "new"),
    [(1, True), (1, 1.0), ("a", b"a"), (b"\x91\x01", [1]), (0.0, -0.0), ({}, []), (None, False)],
)
def test_what_looks_alike_is_told_apart(old: object, new: object) -> None:
    pad = ["p" * 5000]
    for first, second in ((old, new), (new, old)):
        shelf = Shelf()
        _, last = write_tree([first, pad, first], shelf.put)
        root, _ = write_tree([pad, second, second], shelf.put, last)
        found = read_value(root, shelf.chunks.__getitem__)
        assert [type(found[1]), repr(found[1])] == [type(second), repr(second)]


@pytest.mark.parametrize("plain", [True, False])
def test_a_built_value_is_the_callers_own(plain: bool) -> None:
    value = {"a": [1, 2], "b": ["z" * 5000], "c": {"d": {"e": 1}}, "f": {"g": "y" * 600}}
    wanted = copy.deepcopy(value)
    _, tree = write_tree(Plain(value) if plain else value, Shelf().put)
    tree.build()["a"].append(3)
    tree.build()["b"].append("q")
    tree.build()["c"]["d"]["e"] = 2
    tree.build()["f"]["g"] = 2
    assert tree.build() == value == wanted


def test_a_list_that_is_vouched_for_is_known_by_the_objects_it_had_last() -> None:
    """Also where they only equal those that its nodes were made of, as when few are packed anew."""
    shelf = Shelf()
    rows = [{"id": i, "text": f"{i} " * 500} for i in range(5)]
    _, last = write_tree(Plain([*rows]), shelf.put)
    again = copy.deepcopy(rows)
    again.append({"id": 5})
    _, last = write_tree(Plain([*again]), shelf.put, last)
    again[0]["id"] = "nobody looks"
    root, _ = write_tree(Plain([*again, {"id": 6}]), shelf.put, last)
    assert read_value(root, shelf.chunks.__getitem__) == [*rows, {"id": 5}, {"id": 6}]


def test_only_what_is_vouched_for_is_not_looked_at() -> None:
    with pytest.raises(BadInput):
        write_tree({"a": (1, 2)}, Shelf().put)
    shelf = Shelf()
    assert write_tree(Plain({"a": [1]}), shelf.put)[0] == write_tree({"a": [1]}, shelf.put)[0]
