"""What to do about a command: pure, from the command and a few facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.oci.command import RuncCommand
from holdfast.oci.state import Exit, Killed

Action = Literal[
    "pass",  # to runc, untouched
    "create",  # mark it; revive it from a checkpoint if there is one
    "thaw",  # start of a revived container
    "checkpoint",
    "restore",  # the caller brings the images
    "delete",
    "kill",  # remember that somebody asked
    "hold",  # nothing to do: it is frozen until it is started
    "state",  # say `created`, not `paused`
]
Ending = Literal["finished", "stopped", "crashed", "unknown"]

# Ways of dumping that make no checkpoint by themselves, or send it elsewhere.
_NOT_OURS = ("pre-dump", "lazy-pages", "page-server", "parent-path", "status-fd")
# Signals that programs take as a word with them; every other one asks them to end.
_TALK = frozenset(["HUP", "USR1", "USR2", "CONT", "STOP", "TSTP", "CHLD", "0"])
_NUMBERS = {"1": "HUP", "10": "USR1", "12": "USR2", "17": "CHLD", "18": "CONT", "19": "STOP",
            "20": "TSTP"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to know before deciding."""

    opted_in: bool = False  # by its configuration, for create and restore
    marked: bool = False  # for everything after
    unstarted: bool = False  # revived, and frozen until it is started


def decide(command: RuncCommand, facts: Facts) -> Action:
    """The one thing to do about a command."""
    options = command.options
    if command.doubts or options.on("help") or options.on("version"):
        return "pass"
    match command.subcommand:
        case "create" if facts.opted_in:
            return "create"
        case "restore" if facts.opted_in:
            return "restore"
    if not facts.marked:
        return "pass"
    match command.subcommand:
        case "checkpoint" if not any(name in options for name in _NOT_OURS):
            return "checkpoint"
        case "delete":
            return "delete"
        case "kill":
            return "kill"
        case "start" if facts.unstarted:
            return "thaw"
        case "pause" | "resume" if facts.unstarted:
            return "hold"
        case "state" if facts.unstarted:
            return "state"
    return "pass"


def asks_to_end(signal: str) -> bool:
    """Whether a signal sent through `runc kill` is meant to end the container."""
    name = signal.upper().removeprefix("SIG")
    return _NUMBERS.get(name, name) not in _TALK


def ending(end: Exit | None, killed: Killed | None) -> Ending:
    """What the end of a container means. When in doubt its checkpoints are kept."""
    if killed is not None:
        return "stopped"
    if end is None:
        return "unknown"
    return "finished" if end.code == 0 else "crashed"
