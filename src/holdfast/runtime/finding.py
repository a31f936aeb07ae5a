"""What a probe found. A finding is a value: it says what is so, never does anything about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How well the probed thing works here."""

    OK = "ok"
    LIMITED = "limited"  # works, with less speed or fewer abilities
    MISSING = "missing"  # not here; can be added
    BROKEN = "broken"  # here, but it does not work


class Level(StrEnum):
    """The four levels at which Holdfast freezes work."""

    STATE = "state"
    SESSION = "session"
    SANDBOX = "sandbox"
    CONTAINER = "container"


ALL_LEVELS = tuple(Level)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about this machine, and the command that would mend it."""

    name: str
    status: Status
    detail: str
    mends: str | None = None
    enables: tuple[Level, ...] = ()

    @property
    def works(self) -> bool:
        """Whether it can be used at all."""
        return self.status in (Status.OK, Status.LIMITED)
