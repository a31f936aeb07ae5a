"""What a session changes in libraries: found, brought back, set back, or reported."""

from __future__ import annotations

import ast

import pytest

from holdfast.session import Session
from holdfast.session.worker.assignments import Assignments

CHANGES = """
def later():
    import wave  # nobody has loaded it before
    wave.open = wave.extra = 5
later()
import collections.abc, string, textwrap
class Odd: pass
_ = collections.abc.Mapping.register(Odd)
def put(cls, name):
    setattr(cls, name, lambda self: 7)
put(string.Template, "substitute")
vars(textwrap).update(dedent=8)
"""
# Whether each of them is as it was changed. `abc` is asked what it would print for debugging.
SEEN = """
import abc, collections.abc, string, textwrap, wave
odd = [each() for each in abc._get_dump(collections.abc.Mapping)[0]]
[wave.open == 5, hasattr(wave, "extra"), textwrap.dedent == 8, "Odd" in [c.__name__ for c in odd if c],
 "lambda" in string.Template.substitute.__name__]
"""  # noqa: E501
LEAVING = {
    "atexit.register": "import atexit\natexit.register(print)",
    "codecs.register": "from codecs import register\nregister(lambda name: None)",
    "sqlite3.register_adapter": "def f():\n    import sqlite3 as s\n"
    "    s.register_adapter(f, str)\nimport sqlite3 as s\nf()",
    "mimetypes.types_map": "import mimetypes\nmimetypes.types_map['.x'] = 'a/b'",
    "sys.meta_path": "import sys\nsys.meta_path.append(sys.meta_path[-1])",
}


async def test_a_rollback_sets_libraries_back(session: Session) -> None:
    await session.execute("a = 1", check=True)
    before = await session.checkpoint()
    await session.execute(CHANGES, check=True)
    after = await session.checkpoint()
    assert (await session.execute(SEEN, check=True)).value == [True] * 5
    await session.restore(before)
    assert (await session.execute(SEEN, check=True)).value == [False] * 5
    await session.restore(after)
    assert (await session.execute(SEEN, check=True)).value == [True] * 5


async def test_a_submodule_that_was_loaded_is_no_change_of_its_package(session: Session) -> None:
    await session.execute(
        "import numpy as np, wsgiref\nclass Object: pass\n"
        "thing = Object()\nthing.ma = thing.util = 1",
        check=True,
    )
    before = await session.checkpoint()
    await session.execute("np.ma.masked_array([1])\nimport wsgiref.util", check=True)
    assert (await session.checkpoint()).report["np"].reason == "import numpy"
    await session.restore(before)
    asked = "import wsgiref.util\n[str(np.ma.masked_array([1])), wsgiref.util.__name__]"
    assert (await session.execute(asked, check=True)).value == ["[1]", "wsgiref.util"]


async def test_what_cannot_come_back_is_reported(session: Session) -> None:
    for cell in LEAVING.values():
        await session.execute(cell, check=True)
    report = (await session.checkpoint()).report
    left = {item.name: item.reason for item in report.items if item.outcome == "skipped"}
    assert left.keys() == {f"state:{name}" for name in LEAVING}
    assert all("not brought back" in reason for reason in left.values())


async def test_what_comes_back_is_not_reported(session: Session) -> None:
    await session.execute(
        "import sys, os\nsys.path.append('/x')\nos.environ.update(A='b')\n"
        "d = {}\nd['a'] = 1\nclass C:\n    all = []\nC.all.append(1)",
        check=True,
    )
    report = (await session.checkpoint()).report
    assert [item.name for item in report.items if item.outcome == "skipped"] == []


@pytest.mark.parametrize(
    ("code", "names", "owners", "computed"),
    [
        ("a.b.c = 1", {"c"}, {("a", "b")}, False),
        ("del a.c", {"c"}, {("a",)}, False),
        ("self.c = 1", set(), set(), False),
        ("def f():\n    a.c += 1", {"c"}, {("a",)}, False),
        ("setattr(a.b, 'c', 1)", {"c"}, {("a", "b")}, False),
        ("setattr(a, n, 1)", set(), {("a",)}, True),
        ("vars(a)['c'] = 1", {"c"}, {("a",)}, False),
        ("a.b.__dict__[n] = 1", set(), {("a", "b")}, True),
        ("vars(a).update(c=1)", set(), {("a",)}, True),
        ("exec('a.c = 1')", {"c"}, {("a",)}, False),
        ("exec('no python')", set(), set(), False),
        ("print(a.c, b[c])\na = c", set(), set(), False),
    ],
)
def test_what_source_says(
    code: str, names: set[str], owners: set[tuple[str, ...]], computed: bool
) -> None:
    found = Assignments()
    found.read(ast.parse(code))
    assert (found.names, found.owners, found.computed) == (names, owners, computed)
