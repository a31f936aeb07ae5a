"""How a server keeps sandboxes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.sandbox.contract import Limits
from holdfast.sandbox.egress import Reach
from holdfast.sandbox.line import ANSWER_SECONDS

MOST, WARM = 64, 1
STARTING, WAITING, WAIT_SECONDS = 4, 16, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What whoever starts a server decides about its sandboxes."""

    most: int = MOST
    warm: int = WARM
    starting: int = STARTING  # being made at once
    waiting: int = WAITING  # in line for that, of one token
    wait_seconds: float = WAIT_SECONDS
    patience: float = ANSWER_SECONDS  # for a sandbox's agent to answer
    idle_timeout: float = 300.0  # for a client that does not say
    checkpoints: bool = True
    network: bool = True  # whether a sandbox may have the host's
    limits: Limits = field(default_factory=Limits)
    images: tuple[tuple[str, Path], ...] = ()
    templates: tuple[str, ...] = ()  # of which bodies stand ready from the beginning
    egress: Reach = "public"  # what an allow-list may lead to
    url: str | None = None  # where others reach this server
