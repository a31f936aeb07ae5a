"""Whatever a session puts in place of what its worker uses, it can be frozen and brought back."""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib
import os
import sys
from pathlib import Path

import pytest

import holdfast.session.worker
from holdfast.session import Session

PATCH = """
import {module} as target
def boom(*given, **options): raise RuntimeError("patched")
target.{name} = boom
"""


def used() -> list[tuple[str, str]]:
    """The builtins and the functions and classes of the library that the worker's code uses, by
    module and name."""
    found: set[tuple[str, str]] = set()
    for path in Path(holdfast.session.worker.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        modules: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules.update({each.asname or each.name: each.name for each in node.names})
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {(node.module, each.name) for each in node.names}
            elif isinstance(node, ast.Name) and hasattr(builtins, node.id):
                found.add(("builtins", node.id))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found.add((modules.get(node.value.id, ""), node.attr))
    return sorted(each for each in found if is_function(*each))


def is_function(module: str, name: str) -> bool:
    """Whether it is a function or a class of the standard library."""
    if module.partition(".")[0] not in sys.stdlib_module_names or module == "__future__":
        return False
    value = getattr(importlib.import_module(module), name, None)
    raised = isinstance(value, type) and issubclass(value, BaseException)
    return callable(value) and not raised


USED = used()


async def patched(session: Session, module: str, name: str) -> list[str]:
    """What goes wrong when a session replaces this."""
    wrong: list[str] = []
    result = await session.execute(PATCH.format(module=module, name=name))
    if result.error is not None:
        return [f"{module}.{name} cannot be replaced: {result.error.message}"]
    try:
        made = await session.checkpoint()
        if (await session.execute(f"target.{name} is boom")).value is not True:
            wrong.append("gone after the checkpoint")
        await session.execute("values.append(2)")
        report = await session.restore(made)
        wrong += [f"{i.name}: {i.reason}" for i in report.items if i.outcome == "placeholder"]
        if (await session.execute(f"[target.{name} is boom, values]")).value != [True, [1]]:
            wrong.append("gone after the restore")
    except Exception as error:  # noqa: BLE001  # all are told together
        wrong.append(f"{type(error).__name__}: {error}"[:200])
    return [f"{module}.{name}: {each}" for each in wrong]


async def check(session: Session, names: list[tuple[str, str]]) -> None:
    await session.execute("import threading\nclass Own: pass\nown, values = Own(), [1]", check=True)
    clean = await session.checkpoint()
    wrong: list[str] = []
    for module, name in names:
        found = await patched(session, module, name)
        wrong += found
        await session.restore(clean)
        back = f"__import__('importlib').import_module({module!r}).{name}.__name__"
        if (await session.execute(back)).value == "boom":
            wrong.append(f"{module}.{name}: there after a restore to before")
    assert not wrong, "\n".join(wrong)


def test_names_that_the_worker_uses_are_found() -> None:
    assert {("builtins", "open"), ("builtins", "len"), ("os", "fork"), ("json", "loads")} <= {*USED}
    assert len(USED) > 150


async def test_replaced_builtins_do_not_stop_the_worker(session: Session) -> None:
    await check(session, [each for each in USED if each[0] == "builtins"])


async def test_replaced_functions_do_not_stop_the_worker(session: Session) -> None:
    await check(session, [each for each in USED if each[0] != "builtins"])


@pytest.mark.parametrize("is_long", [False, True])
async def test_mocked_names_do_not_stop_the_worker(session: Session, is_long: bool) -> None:
    """A mock is set by the text of its name, also in a module that no cell imports; and some
    captures are made in a copy of the process."""
    seconds = 0.1 * is_long
    await session.execute(
        "import time\nwait = time.sleep\nclass Slow:\n"
        f"    def __reduce__(self):\n        wait({seconds})\n        return Slow, ()\n"
        "slow = Slow()",
        check=True,
    )
    await session.checkpoint()
    await session.execute(
        "from unittest import mock\n"
        "for name in ('json.loads', 'os.fork', 'builtins.len'):\n"
        "    mock.patch(name, side_effect=RuntimeError('patched')).start()",
        check=True,
    )
    await session.execute("mock.patch('ast.parse', side_effect=RuntimeError).start()", check=True)
    made = await session.checkpoint()
    assert made.report["slow"].outcome == "exact"
    asked = "import ast, json, os\n[json.loads, os.fork, ast.parse, len]"
    assert str((await session.execute(asked, check=True)).value).count("Mock") == 4


async def test_threads_keep_replaced_builtins(session: Session, tmp_path: Path) -> None:
    """Between cells builtins are what the session made them."""
    told = tmp_path / "told"
    os.mkfifo(told)
    await session.execute(
        "import builtins, threading, time\n"
        "def wait():\n    while sum([]) != 'mine': time.sleep(0.01)\n"
        f"    with open({str(told)!r}, 'w') as file: file.write(sum([]))\n"
        "thread = threading.Thread(target=wait)\nthread.start()",
        check=True,
    )
    await session.execute("builtins.sum = lambda given: 'mine'", check=True)
    assert await asyncio.to_thread(told.read_text) == "mine"
