"""What a worker loads before its first answer, and how."""

from __future__ import annotations

import ast
import gc
import inspect
import subprocess
import sys
import typing
from pathlib import Path

import msgspec
import typing_extensions

from holdfast.session import Session
from holdfast.session.worker import runner
from holdfast.session.worker.boot import Uncollected

# A session that comes back waits for every module that its worker loads: what these are for comes
# later, or not at all.
LATER = {
    "asyncio": "cells that await",
    "dataclasses": "nothing: it takes longer to load than it saves to write",
    "holdfast.session.worker.blocks": "captures of large arrays of objects",
    "holdfast.session.worker.budget": "captures that are too large",
    "holdfast.session.worker.freezer": "captures",
    "holdfast.session.worker.inspection": "captures, and questions about variables",
    "holdfast.session.worker.kinds.contract": "captures, and whoever checks types",
    "holdfast.session.worker.kinds.pairs": "captures of pipes and sockets",
    "holdfast.session.worker.memory.image": "captures of large memory",
    "holdfast.session.worker.memory.limited": "cells with a limit",
    "holdfast.session.worker.reasons": "what cannot be brought back",
    "holdfast.session.worker.secrets": "captures, and what cannot be brought back",
    "holdfast.session.worker.segments": "captures of large containers",
    "holdfast.store": "the host",
    "inspect": "questions about variables",
    "json": "nothing",
    "logging": "nothing",
    "numpy": "sessions that use it",
    "pathlib": "nothing",
    "resource": "cells with a limit",
    "signal": "handlers that a session set: `_signal` has all of it",
    "socket": "nothing: `_socket` does",
    "subprocess": "nothing",
    "tempfile": "nothing",
    "threading": "cells that use it",
    "typing_extensions": "nothing: msgspec can do without",
}
LOADED = "import sys\nsorted(sys.modules)"
WORK = """
class Point:
    def __init__(self, x):
        self.x = x

def double(value):
    return 2 * value

points = {n: Point(n) for n in range(10)}
"""


async def test_a_worker_loads_little_before_its_first_answer(tmp_path: Path) -> None:
    async with Session("work", store=str(tmp_path)) as session:
        assert set((await session.execute(LOADED)).value).isdisjoint(LATER)
        await session.execute(WORK, check=True)
        await session.checkpoint()
    async with await Session.resume("work", store=str(tmp_path)) as session:
        assert set((await session.execute(LOADED)).value).isdisjoint(LATER)
        assert (await session.execute("double(points[4].x)", check=True)).value == 8


def test_there_are_modules_of_these_names() -> None:
    for name in LATER:
        __import__(name)


DECODED = """
import msgspec, typing_extensions as t

class Form(t.TypedDict, total=False):
    name: t.Required[t.Annotated[str, msgspec.Meta(min_length=2)]]
    size: int

def read(data):
    try:
        return msgspec.json.decode(data, type=Form)
    except msgspec.ValidationError as error:
        return str(error)

[read(b'{"name": "ab"}'), read(b'{"size": 1}'), read(b'{"name": "a"}'), t.__name__]
"""


async def test_sessions_use_msgspec_as_it_is(tmp_path: Path) -> None:
    """Also with `typing_extensions`, which its worker loaded it without."""
    lines, _, last = DECODED.rstrip().rpartition("\n")
    plain = subprocess.run(
        [sys.executable, "-c", f"{lines}\nprint({last})"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    async with Session(store=str(tmp_path)) as session:
        found = (await session.execute(DECODED, check=True)).value
    assert found == ast.literal_eval(plain.stdout)
    assert found[0] == {"name": "ab"}


def test_what_msgspec_asks_typing_extensions_for_is_in_typing() -> None:
    class Form(typing_extensions.TypedDict):
        name: typing_extensions.Required[str]
        size: typing_extensions.NotRequired[typing.Annotated[int, msgspec.Meta(gt=0)]]

    assert typing_extensions.Required is typing.Required
    assert typing_extensions.NotRequired is typing.NotRequired
    spelled = {"globalns": globals(), "localns": locals(), "include_extras": True}
    hints = typing_extensions.get_type_hints(Form, **spelled)
    assert hints == typing.get_type_hints(Form, **spelled)
    assert typing.get_origin(hints["name"]) is typing.Required


async def test_a_folder_may_have_modules_with_names_of_standard_ones(tmp_path: Path) -> None:
    """Python loads only some before it looks into a program's folder; a worker needs many more."""
    for name in sys.stdlib_module_names:
        (tmp_path / f"{name}.py").write_text("own = True\n")
    store = str(tmp_path / "store")
    async with Session("work", store=store, cwd=str(tmp_path)) as session:
        await session.execute(f"{WORK}\nimport random, sys", check=True)
        made = await session.checkpoint()
        # What the capture needed has not taken their place.
        own = "import string\n[random.own, string.own, sys.path[0]]"
        assert (await session.execute(own, check=True)).value == [True, True, ""]
        await session.restore(made)
        assert (await session.execute("double(points[4].x)", check=True)).value == 8
        await session.checkpoint()
    async with await Session.resume("work", store=store, cwd=str(tmp_path)) as session:
        assert (await session.execute(own, check=True)).value == [True, True, ""]
        assert (await session.execute("double(points[4].x)", check=True)).value == 8


def test_what_is_imported_is_not_collected() -> None:
    with Uncollected():
        assert not gc.isenabled()
        made = [{} for _ in range(1000)]
    assert gc.isenabled()
    young = {id(each) for each in gc.get_objects(generation=0)}
    assert not any(id(each) in young for each in made)


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with Uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_is_frozen_stays_frozen() -> None:
    mine: list[object] = []
    gc.freeze()
    try:
        with Uncollected():
            pass
        # The collector lists all that it looks at, which is all that is not frozen.
        assert all(each is not mine for each in gc.get_objects())
    finally:
        gc.unfreeze()


def test_cells_that_await_are_known_by_the_flag_of_inspect() -> None:
    assert runner._COROUTINE == inspect.CO_COROUTINE
