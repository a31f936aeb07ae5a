"""What is being typed: whether it is a whole piece of Python yet. Pure."""

from __future__ import annotations

import ast
import warnings
from codeop import CommandCompiler


def is_complete(text: str) -> bool:
    """Whether a text can be run; one that is wrong is complete, since running it says why.

    A block (`for ...:`) is complete when an empty line follows it, as at every Python prompt.
    """
    stripped = text.strip()
    if not stripped or stripped.startswith("%"):
        return True
    compiler = CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come when it is run
            if "\n" not in stripped:
                return compiler(text, symbol="single") is not None
            whole = compiler(text.rstrip() + "\n", symbol="exec")
            empty_line = not text.rpartition("\n")[2].strip()
            return whole is not None and (empty_line or not _is_block(stripped))
    except (SyntaxError, ValueError, OverflowError):
        return True


def _is_block(text: str) -> bool:
    """Whether more lines could belong to the last statement."""
    last = text.splitlines()[-1]
    return last[:1].isspace() or last.rstrip().endswith(":")


def indentation(text: str) -> str:
    """What the next line begins with."""
    last = text.splitlines()[-1] if text else ""
    here = last[: len(last) - len(last.lstrip())]
    return here + "    " if last.rstrip().endswith(":") else here
