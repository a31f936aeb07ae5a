"""Frames of every kind of request, with fields that fit and fields that do not, and mere noise."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from holdfast.protocol.sandbox_messages import CreateRequest, ExecuteRequest, StdinEvent
from holdfast.protocol.sandbox_requests import ACTIONS, LANGUAGES

Values = st.SearchStrategy[Any]

WORDS = ["", "a", "b/c", "..", "/root/a", "/tmp/b/../c", "/proc/self/mem", "echo one", "exit 3"]
WORDS += ["python", "bash", "AAAA", "\0", "\ud800", "\U0001f600" * 3, "x" * 5000]
NUMBERS = [-1, 0, 1, 2, 80, 1001, 2**31, 2**63, 2**64, 0.5, -0.0, 1e308]
scalars: Values = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(WORDS)
junk: Values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner),
    max_leaves=5,
)


def fitting(kind: inspect.Type) -> Values:
    """Values of a type, as far as types go; most are at the edge of what makes sense."""
    match kind:
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType() | inspect.FloatType():
            return st.sampled_from(NUMBERS)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.UnionType(types=types):
            return st.one_of(*map(fitting, types))
        case inspect.VarTupleType(item_type=item):
            return st.lists(fitting(item), max_size=3)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(fitting(key), fitting(value), max_size=2)
        case inspect.StructType(cls=cls):
            return fields(cls)
        case inspect.StrType():
            return st.sampled_from(WORDS)
        case _:
            return st.none()


def fields(kind: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    """An object of a kind: what it must have, some of what it may have, and now and then something
    that it may not."""
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    known = {each.encode_name: fitting(each.type) for each in described.fields}
    needed = {each.encode_name for each in described.fields if each.required}
    wrong = st.dictionaries(st.sampled_from([*known, "newer"]), junk, max_size=1)
    right = st.fixed_dictionaries(
        {name: known[name] for name in needed},
        optional={name: known[name] for name in known if name not in needed},
    )
    return st.builds(lambda some, other, mixed: some | other if mixed else some, right, wrong, rare)


rare = st.integers(0, 3).map(lambda number: number == 0)
noise: st.SearchStrategy[str | bytes] = (
    st.text(max_size=50) | st.binary(max_size=50) | junk.map(json.dumps)
)
asked = st.one_of(*map(fields, (*ACTIONS.values(), StdinEvent, ExecuteRequest)))
told = st.fixed_dictionaries(
    {"language": st.sampled_from(LANGUAGES), "code": st.sampled_from(WORDS)}
)
begun = st.builds(lambda some, what: some | what, fields(ExecuteRequest), told)  # by chance, hardly
requests = (asked | asked | begun).map(json.dumps)
frames: st.SearchStrategy[str | bytes] = st.one_of(requests, requests, requests, noise)
first_frames: st.SearchStrategy[str | bytes] = st.one_of(
    fields(CreateRequest).map(json.dumps), noise
)
