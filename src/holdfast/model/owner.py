"""Owners: who runs a subject now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who has the right to advance a subject. A larger `token` is a later owner."""

    subject: Subject
    name: str
    url: str | None
    token: int
    since: datetime
    lasts: float  # seconds without a sign of life after which it counts as gone
    beat: bytes  # the name of its sign of life
