"""Processes that came back and stand still, until they are let go.

CRIU would let them run as soon as they are there: before the container is frozen, before it has a
loopback, and before its engine knows of it. Stopped by CRIU, they do nothing; when the container
is frozen as a whole, they are let go, and wait with it for its start.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.oci.engine import below
from holdfast.oci.memory.fields import body, fields, number

STOPPED = "leave-stopped"  # what CRIU is told
_HEAD = 12  # bytes of an image before its only message: two magic numbers, and its length
_TASK, _STATE = 3, 2  # of a process: what is not its threads', and therein what it was doing
_WAS_STOPPED = 3


def let_go(pid: int, images: Path) -> None:
    """Let a container's processes go on, as far as they did when the images were made of them.
    `pid` is its first."""
    depth = len(numbers(pid)) - 1
    waiting = set(_stopped(images))
    for each in (pid, *below(pid)):
        with suppress(ProcessLookupError, FileNotFoundError):  # killed from outside
            if numbers(each)[depth] not in waiting:
                os.kill(each, signal.SIGCONT)


def numbers(pid: int) -> list[int]:
    """A process's numbers, from the host's to that of its innermost namespace."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    told = next(line for line in lines if line.startswith("NSpid:"))
    return [int(each) for each in told.split()[1:]]


def _stopped(images: Path) -> Iterator[int]:
    """The processes, by their own numbers, that somebody had stopped before they were frozen."""
    for path in images.glob("core-*.img"):
        tasks = [each for found, each in fields(path.read_bytes()[_HEAD:]) if found == _TASK]
        for task in tasks:  # none of a further thread
            for found, each in fields(body(task)):
                if found == _STATE and number(each) == _WAS_STOPPED:
                    yield int(path.stem.partition("-")[2])
