"""Somebody at a terminal, who types and sees."""

from __future__ import annotations

import os

import pexpect
from tests.cli.conftest import HOLDFAST

SGR = r"\x1b\[[0-9;]+m"  # how letters look from here on
COLOUR = r"\x1b\[(?:\d+;)*(?:3[1-8]|9[1-7])[0-9;]*m"  # not in black and white


class Person:
    """Has called the program, on a terminal of the given kind."""

    def __init__(self, *arguments: str, term: str = "dumb") -> None:
        environ = {**os.environ, "TERM": term, "PROMPT_TOOLKIT_NO_CPR": "1"}
        environ.pop("NO_COLOR", None)
        self.child: pexpect.spawn[str] = pexpect.spawn(
            str(HOLDFAST),
            list(arguments),
            env=environ,
            encoding="utf-8",
            timeout=60,
            dimensions=(40, 120),
        )

    def sees(self, pattern: str) -> str:
        self.child.expect(pattern)
        return str(self.child.before)

    def types(self, *lines: str) -> None:
        for line in lines:
            self.child.send(line + "\r")

    def leaves(self) -> None:
        self.child.close(force=True)
