"""What a capture says about each variable: its outcome, and the reasons, its own only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.session import layout
from holdfast.session.layout import NAME, SEGMENT
from holdfast.session.worker.codes import Place as Source
from holdfast.session.worker.memory.tracker import Place
from holdfast.session.worker.sources import note
from holdfast.session.worker.units import Taken, Unit


class Account(NamedTuple):
    """One unit: what is to be said about it."""

    unit: Unit
    outcome: str
    reasons: list[str]
    size: int
    secrets: tuple[str, ...] = ()  # the names of those that were left out


def accounts(
    taken: list[Taken],
    apart: Mapping[str, str],
    redacted: Mapping[Source, tuple[str, ...]],
    places: Mapping[str, Place],
) -> list[Account]:
    """An account of each unit but segments, which belong to their containers.

    `apart` has members that no longer share, `redacted` the names of the secrets that the source at
    a place lost.
    """
    pieces: dict[str, list[Taken]] = {}
    for each in taken:
        if each.unit.kind == SEGMENT:
            pieces.setdefault(each.unit.name, []).append(each)
    found: list[Account] = []
    for each in taken:
        if each.attempt is None and each.unit.kind == NAME and not apart:
            # Plain data, or an array: there is nothing to be said about either.
            beside = _beside([each], places) if each.found.used else 0
            found.append(Account(each.unit, "exact", [], len(each.data) + beside))
        elif each.unit.kind != SEGMENT:
            whole = [each, *_within(each, pieces)]
            outcome, reasons = _judged(whole, apart.get(each.unit.member, ""), redacted)
            size = sum(len(part.data) for part in whole) + _beside(whole, places)
            names = tuple(name for part in whole for name in _secrets(part, redacted))
            found.append(Account(each.unit, outcome, reasons, size, names))
    return found


def _judged(
    whole: list[Taken], first: str, redacted: Mapping[Source, tuple[str, ...]]
) -> tuple[str, list[str]]:
    # Pickled by itself, each member shows what is its own and not its neighbour's.
    reasons = [first]
    holes: dict[str, None] = {}
    waiting = True  # for nothing but what is missing here
    for part in whole:
        found = part.found
        reasons += found.notes
        reasons += [f"left out a secret: {name}" for name in found.secrets]
        reasons += [note(redacted[place]) for place in sorted(found.places)]
        holes |= {f"{hole.type_name}: {hole.reason}": None for hole in found.holes}
        waiting = waiting and all(hole.revives for hole in found.holes)
    reasons = [reason for reason in dict.fromkeys(reasons) if reason]
    if holes:
        why = layout.MISSING if waiting else layout.HOLDS
        reasons.insert(0, why + "; ".join(list(holes)[:3]))
    return "placeholder" if holes else "rebuilt" if reasons else "exact", reasons


def _secrets(part: Taken, redacted: Mapping[Source, tuple[str, ...]]) -> list[str]:
    inside = [name for place in sorted(part.found.places) for name in redacted[place]]
    return [*part.found.secrets, *inside]


def _beside(whole: list[Taken], places: Mapping[str, Place]) -> int:
    """Bytes of the memory that a variable keeps beside its records."""
    labels = {label for part in whole for label in part.found.used}
    return sum(places[label][1] for label in labels if label in places)


def _within(whole: Taken, pieces: Mapping[str, list[Taken]]) -> list[Taken]:
    """The segments of a unit's large containers, and of those inside them."""
    found: list[Taken] = []
    labels, waiting = set(), list(whole.found.used)
    while waiting:
        label = waiting.pop()
        if label in labels:
            continue
        labels.add(label)
        for piece in pieces.get(label, ()):
            found.append(piece)
            waiting += piece.found.used
    return found
