"""Lines that begin with %: commands to the prompt itself. Pure: a line in, a command out."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass

from holdfast.model.errors import BadInput

# name -> (arguments, what it does)
MAGICS: dict[str, tuple[str, str]] = {
    "checkpoint": ("[REASON]", "take a checkpoint now"),
    "log": ("", "draw the lineage"),
    "whos": ("", "list the variables: type, size, and how each was kept"),
    "diff": ("[A] [B]", "what changed from A to B; by default from the last checkpoint but one"),
    "rollback": ("[ID]", "go back, by default to before the last cell"),
    "restore": ("[ID]", "replace everything by a checkpoint, by default the last"),
    "fork": ("NAME", "start another session from this moment"),
    "help": ("", "this list"),
    "quit": ("", "leave; the session is kept (or Ctrl-D)"),
}
_MOST = {"checkpoint": 1000, "diff": 2, "rollback": 1, "restore": 1, "fork": 1}
_LEAST = {"fork": 1}


@dataclass(frozen=True, slots=True)
class Magic:
    """A command, with its arguments."""

    name: str
    arguments: tuple[str, ...] = ()


# What Python's own prompt takes for it; as code it would only end the worker.
_LEAVING = frozenset({"exit", "exit()", "quit", "quit()"})


# What IPython takes for more than Python, by line: a command of the system, a magic, a question.
_SYSTEM = re.compile(r"\s*(?:[\w.,\s]+=\s*)?!{1,2}\s*(.+)")
_MAGIC = re.compile(r"\s*(?:[\w.,\s]+=\s*)?%{1,2}\s*([A-Za-z]\w*)\s*(.*)")
_QUESTION = re.compile(r"\s*(?:\?{1,2}\s*([\w.*%]+)|([\w.*%]+)\s*\?{1,2})\s*")
# What does the same here.
_INSTEAD = {
    "timeit": "import timeit; timeit.timeit({!r}, globals=globals(), number=1000)",
    "time": "import time; began = time.perf_counter(); {}; time.perf_counter() - began",
    "matplotlib": "import matplotlib; matplotlib.use('agg')",
    "pip": "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pip', *{!r}.split()])",
    "cd": "import os; os.chdir({!r})",
    "pwd": "import os; os.getcwd()",
    "env": "import os; dict(os.environ)",
    "who": "%whos",
}


def parse(line: str, session: str = "main") -> Magic | None:
    """The command on a line; None when the line is Python. Raises BadInput, which says of what
    only IPython knows how to do it there, with the same `session`."""
    text = line.strip()
    if text in _LEAVING:
        return Magic("quit", ())
    if not text.startswith("%") or "\n" in text:
        _check_python(text, session)
        return None
    name, _, rest = text[1:].partition(" ")
    if name not in MAGICS:
        if name.startswith("%") or name in _INSTEAD:
            instead = _INSTEAD.get(name.lstrip("%"), "").format(rest)
            raise _elsewhere(f"%{name}", instead, session)
        import difflib

        close = difflib.get_close_matches(name, MAGICS, n=1)
        meant = f"did you mean %{close[0]}?" if close else "%help lists all"
        there = "" if close else f"; for IPython's: {_ipython(session)}"
        raise BadInput(f"there is no %{name}", hint=meant + there)
    try:
        arguments = tuple(shlex.split(rest))
    except ValueError as error:
        raise BadInput(f"%{name}: {error}") from None
    if not _LEAST.get(name, 0) <= len(arguments) <= _MOST.get(name, 0):
        usage = f"%{name} {MAGICS[name][0]}".strip()
        wrong = "one name, please" if name == "fork" else "too many words"
        raise BadInput(f"{wrong}: {usage}", hint=f"%{name}: {MAGICS[name][1]}")
    return Magic(name, arguments)


def _check_python(text: str, session: str) -> None:
    """Raises BadInput for what is Python to IPython only."""
    if not ("!" in text or "%" in text or "?" in text):
        return
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        for line in text.split("\n"):
            if match := _QUESTION.fullmatch(line):
                raise _elsewhere(line.strip(), f"help({match[1] or match[2]})", session) from None
            if match := _SYSTEM.fullmatch(line):
                instead = f"import subprocess; subprocess.run({match[1]!r}, shell=True)"
                raise _elsewhere(line.strip(), instead, session) from None
            if match := _MAGIC.fullmatch(line):
                instead = _INSTEAD.get(match[1], "").format(match[2])
                raise _elsewhere(line.strip(), instead, session) from None


def _elsewhere(what: str, instead: str, session: str) -> BadInput:
    here = f"here: {instead}; or " if instead else ""
    return BadInput(f"{what} is IPython's, not Python", hint=here + _ipython(session))


def _ipython(session: str) -> str:
    return f"%quit, then: HOLDFAST_SESSION={shlex.quote(session)} ipython --ext holdfast"


def overview(without: Collection[str] = ()) -> list[tuple[str, str]]:
    """What there is, for %help."""
    return [
        (f"%{name} {usage}".strip(), what)
        for name, (usage, what) in MAGICS.items()
        if name not in without
    ]
