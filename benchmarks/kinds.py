"""The awkward set (W5): each kind of object by itself, what it needs to begin with, and the judge.

Peers get every help: they are tried with each kind alone, so that no other can spoil it, and what a
kind needs of imports is there already, before and after. Only what is there again and passes its
check counts; a placeholder counts for nobody.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "W5"
PATIENCE = 10  # seconds: a lock that came back held, or a pipe without its end, is waited for long
_OWN = re.compile(r"k\d+")  # names that belong to one kind


@dataclass(frozen=True)
class Awkward:
    """One kind: the code that makes it, and an expression that is true where it is back."""

    number: int
    code: str
    check: str
    possible: bool  # nobody can bring back a running frame, or the other end of a socket


def kinds() -> Iterator[Awkward]:
    from tests.session.awkward import KINDS

    for number, kind in enumerate(KINDS):
        code, check, _ = kind.own(number)
        yield Awkward(number, code, check, kind.outcome != "placeholder")


def beginning(folder: Path) -> str:
    """What a person would type first, and type again: all imports, and two plain values."""
    lines: dict[str, None] = {}
    for kind in kinds():
        for node in ast.parse(kind.code).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias for alias in node.names if not _OWN.match(alias.asname or "")]
                if names:
                    node.names = names
                    lines[ast.unparse(node)] = None
    return "\n".join([*lines, f"folder = {str(folder)!r}", "rate = 2"])


def evaluated(check: str, names: dict[str, Any], patience: int = PATIENCE) -> object:
    """The value of an expression, which may await something, as it may in a notebook."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not within {patience} s")

    async def awaited() -> object:
        return await value

    signal.signal(signal.SIGALRM, late)
    signal.alarm(patience)
    try:
        value = eval(compile(check, "<check>", "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        return asyncio.run(awaited()) if inspect.iscoroutine(value) else value
    finally:
        signal.alarm(0)


def attempt(call: Callable[[], Any]) -> Any:
    """What came of it; a text says how it failed: a tool that gives nothing back is a finding."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  # the tool's failure is the finding
        return f"{type(error).__name__}: {error}"[:100]


def judged(evaluate: Callable[[Awkward], object]) -> dict[str, int]:
    """How many of how many are right."""
    every = list(kinds())
    right = [attempt(lambda k=kind: evaluate(k)) is True for kind in every if kind.possible]
    return {"right": sum(right), "of": len(every)}
