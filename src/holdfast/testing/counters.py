"""The counter that a container under test writes: how far it is, whoever runs it."""

from __future__ import annotations

from typing import Protocol

from holdfast.testing.waiting import eventually

_LOOK = "[ -e /count ] && cat /count || echo 0"


class Runs(Protocol):
    """What starts a command in a container, and gives what that prints."""

    def exec(self, name: str, *args: str) -> str: ...


def count(engine: Runs, name: str) -> int:
    """The number in a container's `/count`; 0 until it is there.

    Nothing is no number: a shell that counts empties the file before it writes, and an engine
    may lose the output of a command that ends at once."""
    found: list[str] = []

    def looked() -> bool:
        found[:] = engine.exec(name, "sh", "-c", _LOOK).split()
        return bool(found)

    eventually(looked, f"{name} says how far it is")
    return int(found[0])
