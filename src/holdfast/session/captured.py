"""Captures as a worker hands them over: their messages, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from holdfast.model.errors import CaptureFailed
from holdfast.protocol.session_messages import (
    HELD,
    CheckpointCreatedMessage,
    ErrorMessage,
    MemoryMessage,
    PartMessage,
    WorkerMessage,
)
from holdfast.session.memory import Distant, Memories

_LONG = 16 << 20  # bytes that take a moment to be written
HEAVY = 1 << 30  # bytes of memory that are not to be needed twice at once


class StoodStill(CaptureFailed):
    """A copy of the worker cannot make this capture; the worker itself can."""


class Captured(NamedTuple):
    """A capture as the worker sent it."""

    parts: dict[str, bytes]
    memory: Memories
    created: CheckpointCreatedMessage
    release: Callable[[], None] = lambda: None  # when its memory has been read
    kept: Mapping[str, int] = {}  # parts that it did not bring, and which request did

    def all(self) -> Captured:
        """It is all there."""
        return self

    def close(self) -> None:
        """Nobody wants it."""
        self.release()

    @property
    def size(self) -> int:
        """Counted here: what a worker says about itself is not relied upon."""
        return sum(map(len, self.parts.values())) + self.memory.size

    @property
    def long(self) -> bool:
        """Whether somebody would feel the time that it takes to be saved."""
        return self.size > _LONG

    @property
    def heavy(self) -> bool:
        """Whether nothing else should be on its way meanwhile."""
        return self.size > HEAVY


class Gathering:
    """Takes the messages of a capture as they come."""

    def __init__(self, distant: Distant | None = None) -> None:
        """`distant` is where memory lies that is only pointed at."""
        self._distant = distant
        self._parts: dict[str, bytearray] = {}
        self._kept: dict[str, int] = {}
        self._memory = Memories()

    def take(self, message: WorkerMessage) -> Captured | None:
        """The capture, when this was its last message. Raises CaptureFailed and Corrupt."""
        match message:
            case PartMessage() if message.base:
                self._kept[message.name] = message.base
            case PartMessage():
                self._parts.setdefault(message.name, bytearray()).extend(message.data)
            case MemoryMessage():
                self._memory.take(message, self._distant)
            case ErrorMessage() if message.error_type == HELD:
                raise StoodStill(f"only the worker itself can take a {message.message}")
            case ErrorMessage():
                why = f"{message.error_type}: {message.message}"
                raise CaptureFailed(why, hint=message.hint or None)
            case CheckpointCreatedMessage():
                parts = {name: bytes(data) for name, data in self._parts.items()}
                return Captured(parts, self._memory, message, kept=self._kept)
        return None


def handed_over(captured: Captured, pause_ms: float, release: Callable[[], None]) -> Captured:
    """A capture that the session did not wait for, with the time that it did wait."""
    created = msgspec.structs.replace(captured.created, pause_ms=pause_ms)
    return captured._replace(created=created, release=release)
