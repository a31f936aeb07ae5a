"""Lines that begin with %: commands to the prompt itself. Pure: a line in, a command out."""

from __future__ import annotations

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


def parse(line: str) -> Magic | None:
    """The command on a line; None when the line is Python. Raises BadInput."""
    text = line.strip()
    if text in _LEAVING:
        return Magic("quit", ())
    if not text.startswith("%") or "\n" in text:
        return None
    name, _, rest = text[1:].partition(" ")
    if name not in MAGICS:
        import difflib

        close = difflib.get_close_matches(name, MAGICS, n=1)
        meant = f"did you mean %{close[0]}?" if close else "%help lists all"
        raise BadInput(f"there is no %{name}", hint=meant)
    try:
        arguments = tuple(shlex.split(rest))
    except ValueError as error:
        raise BadInput(f"%{name}: {error}") from None
    if not _LEAST.get(name, 0) <= len(arguments) <= _MOST.get(name, 0):
        usage = f"%{name} {MAGICS[name][0]}".strip()
        wrong = "one name, please" if name == "fork" else "too many words"
        raise BadInput(f"{wrong}: {usage}", hint=f"%{name}: {MAGICS[name][1]}")
    return Magic(name, arguments)


def overview(without: Collection[str] = ()) -> list[tuple[str, str]]:
    """What there is, for %help."""
    return [
        (f"%{name} {usage}".strip(), what)
        for name, (usage, what) in MAGICS.items()
        if name not in without
    ]
