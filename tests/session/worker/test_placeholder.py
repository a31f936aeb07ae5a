"""Placeholders: everything that would use one raises, and looking at one does not."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import operator
import os
import pickle
import struct
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from holdfast.session.worker.missing import missing_class
from holdfast.session.worker.placeholder import Placeholder, PlaceholderError, describe


def plain() -> Any:
    return Placeholder("socket", "it belongs to the process")


def secret() -> Any:
    return Placeholder("str", "set HOLDFAST_SECRET_TOKEN", b"", "token")


def missing() -> Any:
    return missing_class("nowhere", "Thing", "No module named 'nowhere'")()


MADE = [plain, secret, missing]


async def iterate(value: Any) -> None:
    async for _ in value:
        return


async def enter(value: Any) -> None:
    async with value:
        return


async def wait(value: Any) -> None:
    await value


def unpack(value: Any) -> None:
    _, _ = value


def match(value: Any) -> None:
    match value:
        case "a":
            return


def fill(value: Any) -> None:
    with value:
        pass


def put(value: Any) -> None:
    value["a"] = 1


def delete(value: Any) -> None:
    del value["a"]


def assign(value: Any) -> None:
    value.attribute = 1


def drop(value: Any) -> None:
    del value.attribute


USES: dict[str, Callable[[Any], object]] = {
    "next": next, "iter": iter, "list": list, "reversed": reversed, "len": len, "unpacked": unpack,
    "hint": operator.length_hint, "index": lambda p: p[0], "slice": lambda p: p[1:], "put": put,
    "delete": delete, "attribute": lambda p: p.name, "assign": assign, "drop": drop, "match": match,
    "hasattr": lambda p: hasattr(p, "name"), "call": lambda p: p(1, a=2), "with": fill,
    "await": lambda p: asyncio.run(wait(p)), "async for": lambda p: asyncio.run(iterate(p)),
    "async with": lambda p: asyncio.run(enter(p)), "bool": bool, "if not": lambda p: not p,
    "add": lambda p: p + 1, "added": lambda p: "a" + p, "join": lambda p: operator.add([1], p),
    "times": lambda p: p * 2, "timed": lambda p: "a" * p, "divide": lambda p: p / 2,
    "floor": lambda p: p // 2, "modulo": lambda p: p % 2, "divmod": lambda p: divmod(p, 2),
    "power": lambda p: p**2, "powered": lambda p: 2**p, "shift": lambda p: p << 1,
    "and": lambda p: p & 1, "or": lambda p: {} | p, "xor": lambda p: p ^ 1,
    "matmul": lambda p: p @ p,
    "minus": lambda p: -p, "plus": lambda p: +p, "abs": abs, "invert": lambda p: ~p,
    "equal": lambda p: p == 1, "equals": lambda p: 1 == p, "text": lambda p: "a" == p,  # noqa: SIM300
    "unequal": lambda p: p != 1, "less": lambda p: p < 1, "more": lambda p: 1 >= p,  # noqa: SIM300
    "in it": lambda p: "a" in p, "in a list": lambda p: 1 in [p],
    "sorted": lambda p: sorted([p, 1]),
    "sum": lambda p: sum([p]), "max": lambda p: max(p, 1), "count": lambda p: [p].count("a"),
    "format": lambda p: f"{p}", "format call": lambda p: "{}".format(p),  # noqa: UP032
    "padded": lambda p: f"{p:>10}", "bytes": bytes, "int": int, "float": float, "complex": complex,
    "round": round, "trunc": math.trunc, "ceil": math.ceil, "math floor": math.floor,
    "operator": operator.index, "range": range, "path": os.fspath, "open": open,
    "join a path": lambda p: os.path.join("a", p), "pack": lambda p: struct.pack("i", p),
    "json": json.dumps, "pickle": pickle.dumps, "cloudpickle": cloudpickle.dumps,
    "copy": copy.copy, "deepcopy": copy.deepcopy, "within": lambda p: copy.deepcopy({"a": [p]}),
    "array": np.array, "asarray": np.asarray, "as floats": lambda p: np.asarray(p, float),
    "ufunc": lambda p: np.add(p, 1), "array plus": lambda p: np.arange(3) + p,
    "array less": lambda p: np.arange(3) < p, "mean": np.mean, "concatenate": np.concatenate,
    "series": pd.Series, "frame": pd.DataFrame, "index of": pd.Index, "dates": pd.to_datetime,
    "numbers": pd.to_numeric, "column": lambda p: pd.DataFrame({"a": [1]})["a"] + p,
    "assign column": lambda p: pd.DataFrame({"a": [1, 2]}).assign(b=p), "concat": pd.concat,
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("make", MADE)
def test_every_use_raises_placeholder_error(make: Callable[[], Any], use: str) -> None:
    value = make()
    if use == "json":  # it asks for no method: it says what it cannot write
        with pytest.raises(TypeError, match="not JSON serializable"):
            json.dumps(value)
        return
    with pytest.raises(PlaceholderError, match=describe(value)[1]):
        USES[use](value)


@pytest.mark.parametrize("make", MADE)
def test_looking_at_one_raises_nothing(make: Callable[[], Any]) -> None:
    value = make()
    assert describe(value)[1] in repr(value)
    assert repr(value) in repr([value, {"a": value}])
    assert isinstance(value, Placeholder)
    assert not isinstance(value, (str, dict, list))
    assert hash(value) == hash(value)
    assert id(value)
    assert len({value, value, make()}) == 2
    assert {value: 1}[value] == 1
    assert value in [value]
    assert callable(value)
    assert value is not None
    assert type(value).__name__ in ("Placeholder", "Missing")
    assert np.array([None, 1], object).shape == (2,)


def test_a_secret_becomes_no_other_text() -> None:
    assert "socket" in str(plain())
    for use in (str, print, "".join, "Bearer {}".format, "%s".__mod__):
        with pytest.raises(PlaceholderError):
            use(secret())


def test_a_frame_with_one_inside_can_be_looked_at() -> None:
    values = np.empty(2, object)
    values[0], values[1] = plain(), "b"
    assert "placeholder" in repr(values)
    assert "b" in repr(pd.DataFrame({"a": pd.Series(values)}))
