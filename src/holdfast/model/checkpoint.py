"""Checkpoints as the rest of Holdfast sees them: values without any bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec

from holdfast.model.subject import Subject

Split = Literal["pages", "content", "structure", "segment", "whole"]

SHORT = 8  # hex digits of the digest that people see


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable moment of one subject. `pinned` and `tags` are what is in force now."""

    # A structure and no dataclass: one is made for each line of a list, at a third of the price.

    id: str
    subject: Subject
    parents: tuple[str, ...]
    reason: str
    stage: str | None
    time: datetime
    digest: str
    size_bytes: int
    stored_bytes: int
    part_count: int
    sequence: int
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    pinned: bool = False
    rollback_of: str | None = None
    signer: str = ""
    foreign: bool = False

    @property
    def short(self) -> str:
        """What people see and type."""
        return self.digest[:SHORT]

    def __str__(self) -> str:
        return f"{self.short} {self.subject} ({self.reason})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One named byte stream of a checkpoint."""

    name: str
    size: int
    split: Split
    root: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A checkpoint's description: which parts it has."""

    checkpoint: Checkpoint
    parts: tuple[Part, ...]

    def part(self, name: str) -> Part | None:
        """The part of that name, if there is one."""
        return next((part for part in self.parts if part.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMove:
    """One step in the history of a subject's head."""

    subject: Subject
    sequence: int
    time: datetime
    verb: Literal["checkpoint", "restore", "rollback", "fork", "delete", "undo", "import", "aside"]
    before: str | None
    after: str | None
