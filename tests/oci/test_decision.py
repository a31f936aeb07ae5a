"""What is decided, as a table."""

from __future__ import annotations

import pytest

from holdfast.oci.command import RuncCommand
from holdfast.oci.decision import Ending, Facts, asks_to_end, decide, ending
from holdfast.oci.state import Exit, Killed

OURS = Facts(marked=True)
WAITING = Facts(marked=True, unstarted=True)
WANTED = Facts(opted_in=True)
NONE = Facts()

TABLE = [
    ("create --bundle B tc", WANTED, "create"),
    ("create --bundle B tc", NONE, "pass"),
    ("create --help", WANTED, "pass"),
    ("create --unknown tc", WANTED, "pass"),
    ("restore --detach tc", WANTED, "restore"),
    ("restore --detach tc", NONE, "pass"),
    ("start tc", OURS, "pass"),
    ("start tc", WAITING, "thaw"),
    ("checkpoint --image-path I tc", OURS, "checkpoint"),
    ("checkpoint --image-path I tc", NONE, "pass"),
    ("checkpoint --pre-dump tc", OURS, "pass"),
    ("checkpoint --lazy-pages --page-server h:1 tc", OURS, "pass"),
    ("pause tc", OURS, "pass"),
    ("pause tc", WAITING, "hold"),
    ("resume tc", WAITING, "hold"),
    ("state tc", OURS, "pass"),
    ("state tc", WAITING, "state"),
    ("delete tc", OURS, "delete"),
    ("delete --force tc", WAITING, "delete"),
    ("delete tc", NONE, "pass"),
    ("kill tc 9", OURS, "kill"),
    ("kill tc 9", NONE, "pass"),
    ("exec tc sh", OURS, "pass"),
    ("update --memory 1 tc", OURS, "pass"),
    ("list", OURS, "pass"),
]


@pytest.mark.parametrize(("line", "facts", "action"), TABLE)
def test_a_decision(line: str, facts: Facts, action: str) -> None:
    assert decide(RuncCommand.parse(line.split()), facts) == action


@pytest.mark.parametrize(
    ("end", "killed", "meaning"),
    [
        (Exit(0), None, "finished"),
        (Exit(1), None, "crashed"),
        (Exit(None, 11), None, "crashed"),
        (Exit(0), Killed("15"), "stopped"),
        (Exit(None, 9), Killed("KILL"), "stopped"),
        (None, Killed("KILL", "checkpoint"), "stopped"),
        (None, None, "unknown"),
    ],
)
def test_an_ending(end: Exit | None, killed: Killed | None, meaning: Ending) -> None:
    assert ending(end, killed) == meaning


def test_signals_that_ask_to_end() -> None:
    assert all(asks_to_end(name) for name in ("9", "15", "TERM", "SIGKILL", "sigint", "QUIT", "3"))
    assert not any(asks_to_end(name) for name in ("HUP", "1", "SIGUSR1", "10", "12", "CONT", "18"))
