"""Doubts: what speaks against deleting. An entry that cannot be read may have pinned a checkpoint,
or named a pack that now seems to belong to nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.errors import Corrupt
from holdfast.model.report import Problem
from holdfast.store.ledger import Ledger
from holdfast.store.log.frames import REMAINS


@dataclass(frozen=True, slots=True)
class Doubts:
    """What was found before anything was deleted."""

    problems: tuple[Problem, ...] = ()  # while there are any, nothing goes
    # Whether a pack that no entry names may be needed nevertheless: the log's end may be an entry
    # that was damaged, or the pack what a checkpoint is missing.
    spare_unnamed: bool = False

    def refuse(self) -> None:
        """Raise Corrupt if nothing may be deleted."""
        if self.problems:
            raise damaged(self.problems)


def damaged(problems: Sequence[Problem]) -> Corrupt:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Corrupt(
        f"nothing was removed, because the log is damaged and what it said is not known:"
        f" {problems[0]}{more}",
        where=problems[0].where,
        hint="`holdfast verify` names what is lost; `holdfast prune --accept-loss` gives it up",
    )


def look(ledger: Ledger) -> Doubts:
    """Read the whole log, and see whether it can be relied on."""
    damage = [one for one in ledger.backend.audit() if not one.torn]
    now = ledger.refresh()
    settled = [one for one in damage if not one.unsettled]
    inside = [Problem(where=f"log/{one.file}", what=str(one)) for one in settled]
    unsettled = any(one.unsettled and one.size > REMAINS for one in damage)
    there = {volume.name for volume in ledger.backend.volumes()}
    return Doubts((*inside, *now.problems), unsettled or not now.live_volumes() <= there)
