"""What a pickler met in a record, for the report and for other records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.session.worker.codes import Place
from holdfast.session.worker.kinds.pairs import Pair


class Hole(NamedTuple):
    """A node that could not be saved."""

    identity: int
    type_name: str
    reason: str
    revives: bool = False  # where the library is that was missing


@dataclass(slots=True)
class Findings:
    """What a pickler met in a record."""

    holes: list[Hole] = field(default_factory=list)
    places: set[Place] = field(default_factory=set)
    references: set[int] = field(default_factory=set)
    secrets: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)  # in the order in which the pickle takes them
    used: dict[str, None] = field(default_factory=dict)  # labels of what it needs beside it
    ends: set[tuple[Pair, int]] = field(default_factory=set)  # of pairs, and which end it is
    portable: bool = True
    flat: bool = False  # whether it is a deep structure that was laid flat
    unsure: bool = False  # whether reading it back runs code that may refuse
    held: bool = False  # whether a fork of the process may stand still when it reads it back

    @property
    def unproven(self) -> bool:
        """Whether only reading it back tells that it can be: what is made of a placeholder may
        refuse it."""
        return self.unsure or any(not hole.revives for hole in self.holes)
