"""What changed between two checkpoints, or since one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from holdfast.model.errors import NotFound
from holdfast.state import ABSENT, Change, StateManager
from holdfast.state.changes import between
from holdfast.state.values import encode
from holdfast.testing.strategies import values


@dataclass
class Settings:
    strength: float
    name: str = "x"


def test_between_checkpoints_and_until_now(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.state_data.update(
        {
            "step": 1,
            "rows": [1, 2, 3],
            "settings": Settings(1.0),
            "day": date(2026, 1, 2),
            "pair": (1, 2),
            "gone": None,
            "same": {"a": [1]},
        }
    )
    first = manager.checkpoint()
    manager.state_data.update(
        {
            "step": 2,
            "rows": [1, 5],
            "settings": Settings(2.0),
            "day": date(2026, 1, 3),
            "pair": (1, 3),
            "new": "n",
        }
    )
    del manager.state_data["gone"]
    expected = [
        Change("step", 1, 2),
        Change("rows[1]", 2, 5),
        Change("rows[2]", 3, ABSENT),
        Change("settings.strength", 1.0, 2.0),
        Change("day", date(2026, 1, 2), date(2026, 1, 3)),
        Change("pair[1]", 2, 3),
        Change("gone", None, ABSENT),
        Change("new", ABSENT, "n"),
    ]
    assert manager.diff(first) == expected
    second = manager.checkpoint()
    assert manager.diff(first, second.id) == expected
    assert manager.diff(second) == []
    assert manager.diff(second, first)[0] == Change("step", 2, 1)
    assert str(expected[0]) == "step: 1 -> 2"
    with pytest.raises(NotFound):
        manager.diff("20200101_000000_000000")


def test_a_class_that_is_not_known_is_shown_as_json() -> None:
    old = {"x": {"$type": "dataclass", "class": "nowhere:Thing", "fields": {"n": 1}}}
    assert between(old, {"x": 1}) == [Change("x", old["x"], 1)]
    new = {"x": {"$type": "dataclass", "class": "nowhere:Thing", "fields": {"n": 2}}}
    assert between(old, new) == [Change("x.n", 1, 2)]


def test_arrays_are_one_value() -> None:
    old, new = (encode({"a": np.array([1, n])}).state for n in (2, 3))
    (change,) = between(old, new)
    assert change.path == "a"
    assert change.after.tolist() == [1, 3]


@pytest.mark.parametrize(("old", "new"), [(0, False), (1, 1.0), (True, 1)])
def test_what_is_equal_and_yet_another_value(old: object, new: object) -> None:
    for wrap in (lambda v: v, lambda v: [v], lambda v: {"x": {"y": [1, v]}}):
        one, other = encode({"v": wrap(old)}).state, encode({"v": wrap(new)}).state
        [change] = between(one, other)
        assert (change.before, change.after) == (old, new)
        assert type(change.before) is type(old)


@given(values(8), values(8))
def test_nothing_differs_from_itself_and_something_from_something_else(a: Any, b: Any) -> None:
    one, other = encode({"v": a}).state, encode({"v": b}).state
    assert between(one, one) == []
    assert bool(between(one, other)) == (repr(one) != repr(other))
