"""Generators under way, brought back at the `yield` where they wait."""

from __future__ import annotations

import pytest

from holdfast import sync
from holdfast.model.report import Report
from holdfast.store import Store, open_store

# What makes a generator, what is done with it before the checkpoint, and what it gives after it.
CASES = {
    "a loop, and what comes after it": (
        (
            "def f(rows):\n    n = 0\n    for row in rows:\n        n += 1\n        yield row * n\n"
            "    yield 'end'\ng = f([1, 2, 3])"
        ),
        "next(g)",
        "list(g)",
        [4, 9, "end"],
    ),
    "loops in loops, with a condition and `else`": (
        (
            "def f(m):\n    for i in range(m):\n        for j in (1, 2):\n            if j == 2:\n"
            "                continue\n            yield i, j\n"
            "        else:\n            yield 'row'\n"
            "g = f(3)"
        ),
        "(next(g), next(g), next(g))",
        "list(g)",
        ["row", (2, 1), "row"],
    ),
    "what is sent to it": (
        (
            "def f():\n    total = 0\n    while True:\n        got = yield total\n"
            "        total += got\ng = f()"
        ),
        "(next(g), g.send(5))",
        "[g.send(3), g.send(1)]",
        [8, 9],
    ),
    "a context and `finally`, when it is closed": (
        (
            "import contextlib\nout = []\ndef f():\n    with contextlib.ExitStack() as stack:\n"
            "        stack.callback(out.append, 'left')\n        try:\n            yield 1\n"
            "        finally:\n            out.append('finally')\ng = f()"
        ),
        "next(g)",
        "[g.close(), out]",
        [None, ["finally", "left"]],
    ),
    "an error that is thrown into it": (
        "def f():\n    try: yield 1\n    except ValueError: yield 'caught'\ng = f()",
        "next(g)",
        "g.throw(ValueError)",
        "caught",
    ),
    "variables of the function around it": (
        (
            "def make():\n    total = 0\n    def f():\n        nonlocal total\n"
            "        for n in range(4):\n            total += n\n            yield total\n"
            "    return f(), lambda: total\n"
            "g, now = make()"
        ),
        "(next(g), next(g))",
        "[next(g), now()]",
        [3, 3],
    ),
    "another generator that it takes from": (
        (
            "def inner():\n    for n in range(3):\n        yield n\n    return 'done'\n"
            "def f():\n    result = yield from inner()\n    yield result\ng = f()"
        ),
        "next(g)",
        "list(g)",
        [1, 2, "done"],
    ),
    "a method, with a private name": (
        (
            "class C:\n    def __init__(self):\n        self.__by = 10\n    def f(self):\n"
            "        for n in range(3):\n            yield n * self.__by\ng = C().f()"
        ),
        "next(g)",
        "list(g)",
        [10, 20],
    ),
    "a generator expression": (
        "by = 3\ng = (n * by for n in range(4) if n != 2)",
        "next(g)",
        "list(g)",
        [3, 9],
    ),
    "one of a library": (
        "import ast\ng = ast.walk(ast.parse('x + 1'))",
        "[next(g) for _ in range(3)]",
        "[type(node).__name__ for node in g]",
        ["Name", "Add", "Constant", "Load"],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_generator_goes_on(case: tuple[str, str, str, object]) -> None:
    make, first, then, expected = case
    store = open_store("memory://")
    report = made(store, f"{make}\n_ = {first}")
    assert report["g"].outcome == "exact", report["g"]
    with sync.Session.resume("work", store=store) as again:
        # What was brought back is frozen once more.
        assert again.checkpoint().report["g"].outcome == "exact"
    assert answered(store, then) == expected


def test_what_cannot_go_on_says_why() -> None:
    report = made(
        open_store("memory://"),
        HANDLING + "def h():\n    print((yield 1))\ninside = h()\nnext(inside)",
    )
    assert "inside of an `except` or a `finally`" in report["handling"].reason
    assert "make it again" in report["inside"].reason


def test_an_iterator_over_a_placeholder_spoils_no_other() -> None:
    store = open_store("memory://")
    shared = "rows = [1, 2]\nholder = {'rows': rows}\nspoilt = [zip(handling, rows), rows]"
    assert made(store, HANDLING + shared)["spoilt"].outcome == "placeholder"
    assert answered(store, "holder['rows'] is rows") is True


def test_a_generic_class_and_its_instances_share_a_variable() -> None:
    store = open_store("memory://")
    code = """
import typing
T = typing.TypeVar("T")
class Box(typing.Generic[T]):
    def __init__(self, value): self.value = value
made = type("Made", (Box,), {"of": T})
box = made(3)
other = [T, box]
"""
    made(store, code)
    looked = "[box.value, made.of is T, other[0] is T, other[1] is box]"
    assert answered(store, looked) == [3, True, True, True]


HANDLING = """
def f():
    try:
        1 / 0
    except ZeroDivisionError:
        yield 1
handling = f()
next(handling)
"""


def made(store: Store, code: str) -> Report:
    """What a checkpoint says of what the code makes."""
    with sync.Session("work", store=store) as session:
        session.execute(code, check=True)
        return session.checkpoint().report


def answered(store: Store, code: str) -> object:
    """What an expression gives in a new process."""
    with sync.Session.resume("work", store=store) as session:
        return session.execute(code, check=True).value
