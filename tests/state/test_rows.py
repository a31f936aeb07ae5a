"""Rows: lists of flat dicts that are known again. Whatever is done to them is seen."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from holdfast.integrations.langgraph.packing import Packer
from holdfast.state import values
from holdfast.state.encoder import Seen
from holdfast.state.rows import Rows

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "id": f"m{n}", "text": "hello " * 20, "n": n % 2} for n in range(12)
]
CHANGES = {
    "a value that is equal and another": lambda rows: rows[3].update(n=True),
    "a float that is equal": lambda rows: rows[4].update(n=0.0),
    "another text": lambda rows: rows[0].update(text="x"),
    "a new key": lambda rows: rows[5].update(more=None),
    "a key less": lambda rows: rows[5].pop("role"),
    "the same in another order": lambda rows: rows[6].update(role=rows[6].pop("role")),
    "a key that moves to a neighbour": lambda rows: rows[7].update(z=rows[6].pop("n")),
    "what is no longer flat": lambda rows: rows[2].update(text=["a"]),
    "a dict in the place of another": lambda rows: rows.__setitem__(8, dict(rows[8], id="other")),
    "something else in its place": lambda rows: rows.__setitem__(8, "text"),
    "one more at the end": lambda rows: rows.append({"role": "user"}),
    "several more, some not flat": lambda rows: rows.extend([{"a": 1}, {"b": []}, {"c": 2}, 3]),
    "one more ahead": lambda rows: rows.insert(0, {"role": "system"}),
    "one more in between": lambda rows: rows.insert(5, {"role": "system"}),
    "the first one gone": lambda rows: rows.pop(0),
    "the last one gone": lambda rows: rows.pop(),
    "another order": lambda rows: rows.reverse(),
    "the same dict twice": lambda rows: rows.append(rows[0]),
    "nothing left": lambda rows: rows.clear(),
    "nothing": lambda rows: None,
}


class NoSerializer:
    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "repr", repr(obj).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        raise AssertionError(data)


class Encoding:
    """Encodes states one after the other, each with what was seen of the last one."""

    last: Seen | None = None

    def __call__(self, state: dict[str, Any]) -> Any:
        encoded = values.encode(state, last=self.last)
        self.last = encoded.seen
        return encoded.state


class Packing:
    def __init__(self) -> None:
        self.last: dict[int, Rows] | None = None

    def __call__(self, state: dict[str, Any]) -> Any:
        packer = Packer(NoSerializer(), self.last)
        packed = packer.pack(state)
        self.last = packer.rows
        return packed


@pytest.mark.parametrize("way", [Encoding, Packing])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("new_list", [True, False])
def test_every_change_is_seen(way: Any, change: str, new_list: bool) -> None:
    encode = way()
    rows = copy.deepcopy(MESSAGES)
    first = encode({"rows": rows})
    told = repr(first)
    for again in range(3):
        if new_list:
            rows = list(rows)
        if again == 1 and rows:
            CHANGES[change](rows)
        found = encode({"rows": rows})
        assert repr(found) == repr(way()({"rows": rows}))
    assert repr(first) == told, "what was encoded earlier does not change with the state"


@pytest.mark.parametrize("way", [Encoding, Packing])
def test_what_did_not_change_is_the_same_object(way: Any) -> None:
    encode = way()
    rows = copy.deepcopy(MESSAGES)
    first = encode({"rows": rows})["rows"]
    second = encode({"rows": [*rows, {"role": "user"}]})["rows"]
    assert [id(each) for each in second[:-1]] == [id(each) for each in first]
    assert second[-1] == {"role": "user"}


@pytest.mark.parametrize("way", [Encoding, Packing])
@pytest.mark.parametrize("seed", range(5))
def test_many_changes_one_after_the_other(way: Any, seed: int) -> None:
    chance = random.Random(seed)
    encode = way()
    rows = copy.deepcopy(MESSAGES)
    for _ in range(60):
        for _ in range(chance.randrange(3)):
            try:
                CHANGES[chance.choice(list(CHANGES))](rows)
            except (IndexError, KeyError, AttributeError, TypeError, ValueError):
                rows += copy.deepcopy(MESSAGES)
        state = {"rows": rows, "others": [rows[:5], rows[2:9]]}
        assert repr(encode(state)) == repr(way()(state))


def test_a_secret_among_them_is_left_out_each_time() -> None:
    encode = Encoding()
    rows = [*copy.deepcopy(MESSAGES), {"password": "hunter2"}]
    for _ in range(3):
        assert "hunter2" not in repr(encode({"rows": rows}))
        rows = [*rows, {"role": "user"}]
    rows[1]["api_key"] = "hunter2"
    assert "hunter2" not in repr(encode({"rows": rows}))
