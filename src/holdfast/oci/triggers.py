"""What tells that a node is about to go away: a signal, a file, or what a command says."""

from __future__ import annotations

import re
import shlex
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import BadInput
from holdfast.runtime.command import run

_COMMAND_SECONDS = 10.0

Trigger = Callable[[], str | None]  # why it is time, or None


def file_trigger(path: Path) -> Trigger:
    """A file that comes into being."""
    return lambda: f"{path} is there" if path.exists() else None


@dataclass(frozen=True, slots=True)
class CommandTrigger:
    """A command that succeeds and says something, or something that matches."""

    argv: tuple[str, ...]
    expects: re.Pattern[str]

    @classmethod
    def parse(cls, line: str, expects: str) -> CommandTrigger:
        """From a command line, which no shell will see; raises BadInput."""
        try:
            words, pattern = tuple(shlex.split(line)), re.compile(expects)
        except (ValueError, re.error) as error:
            raise BadInput(f"{line!r}, {expects!r}: {error}") from None
        if not words:
            raise BadInput("an empty command tells nothing")
        return cls(words, pattern)

    def __call__(self) -> str | None:
        outcome = run(self.argv, seconds=_COMMAND_SECONDS)
        if outcome.succeeded and self.expects.search(outcome.stdout):
            return f"{self.argv[0]} said {outcome.stdout.strip()[:200]!r}"
        return None


def wait_for(triggers: Sequence[Trigger], every: float) -> str:
    """Wait until the first of them tells, or SIGTERM or SIGINT comes; gives the reason."""
    came = threading.Event()
    names: list[str] = []

    def note(number: int, _frame: object) -> None:
        names.append(signal.Signals(number).name)
        came.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not came.is_set():
            for trigger in triggers:
                reason = trigger()
                if reason is not None:
                    return reason
            came.wait(every)
        return f"{names[0]} came"
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
