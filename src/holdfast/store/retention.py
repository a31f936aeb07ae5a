"""Retention: which checkpoints to keep. Pure: checkpoints and a time in, reasons out.

Policies combine: `Last(10) | Daily(7)` keeps what either wants, `... & MaxBytes(n)` only what both
want. Whatever a policy says, the newest checkpoint, the head and pinned ones are kept.

Here, and nowhere else in the store, "newest" goes by the time at which a checkpoint was made, and
by the log's sequence only where two times are equal: what is imported comes last in the log
however old it is, and must not push out recent work. For the checkpoints of one store both orders
are the same, since its times only grow. `believable_times` sees to checkpoints that came from a
machine whose clock was ahead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput

Reasons = dict[str, str]  # checkpoint id: why it is kept


class Policy(ABC):
    """Says which checkpoints of one subject to keep, and why."""

    @abstractmethod
    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        """Those to keep, each with a reason."""

    def __or__(self, other: Policy) -> Policy:
        return Either(self, other)

    def __and__(self, other: Policy) -> Policy:
        return Both(self, other)


@dataclass(frozen=True, slots=True)
class Either(Policy):
    """What one of two policies wants."""

    a: Policy
    b: Policy

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        a, b = self.a.keep(newest_first, now), self.b.keep(newest_first, now)
        return {one: ", ".join(r[one] for r in (a, b) if one in r) for one in {**a, **b}}


@dataclass(frozen=True, slots=True)
class Both(Policy):
    """What two policies agree on."""

    a: Policy
    b: Policy

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        a, b = self.a.keep(newest_first, now), self.b.keep(newest_first, now)
        return {one: f"{why} and {b[one]}" for one, why in a.items() if one in b}


@dataclass(frozen=True, slots=True)
class Last(Policy):
    """The newest N."""

    count: int

    def __post_init__(self) -> None:
        _check_positive("last", self.count)

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        return {one.id: f"one of the last {self.count}" for one in newest_first[: self.count]}


@dataclass(frozen=True, slots=True)
class Within(Policy):
    """Everything not older than a time span."""

    span: timedelta

    def __post_init__(self) -> None:
        _check_positive("within", self.span.total_seconds())

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        return {
            one.id: f"within {_in_words(self.span)}"
            for one in newest_first
            if now - one.time <= self.span
        }


@dataclass(frozen=True, slots=True)
class Every(Policy):
    """The newest of each interval of so many seconds, as far back as there are any."""

    seconds: float

    def __post_init__(self) -> None:
        _check_positive("every", self.seconds)

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        slot = lambda one: int(one.time.timestamp() // self.seconds)  # noqa: E731
        return _newest_of_each(newest_first, slot, None, f"every {self.seconds:g} s")


@dataclass(frozen=True, slots=True)
class Hourly(Policy):
    """The newest of each of the last N hours that have one."""

    count: int

    def __post_init__(self) -> None:
        _check_positive("hourly", self.count)

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        slot = lambda one: (one.time.date(), one.time.hour)  # noqa: E731
        return _newest_of_each(newest_first, slot, self.count, "hourly")


@dataclass(frozen=True, slots=True)
class Daily(Policy):
    """The newest of each of the last N days that have one."""

    count: int

    def __post_init__(self) -> None:
        _check_positive("daily", self.count)

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        return _newest_of_each(newest_first, lambda one: one.time.date(), self.count, "daily")


@dataclass(frozen=True, slots=True)
class Weekly(Policy):
    """The newest of each of the last N ISO weeks that have one."""

    count: int

    def __post_init__(self) -> None:
        _check_positive("weekly", self.count)

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        slot = lambda one: one.time.isocalendar()[:2]  # noqa: E731
        return _newest_of_each(newest_first, slot, self.count, "weekly")


@dataclass(frozen=True, slots=True)
class Best(Policy):
    """The N with the highest (or lowest) number in a tag; those without the tag do not count."""

    count: int
    tag: str
    lowest: bool = False

    def __post_init__(self) -> None:
        _check_positive("best", self.count)

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        scored = [
            (score, one) for one in newest_first if (score := _score(one, self.tag)) is not None
        ]
        scored.sort(key=lambda pair: pair[0], reverse=not self.lowest)
        word = "lowest" if self.lowest else "highest"
        return {one.id: f"{self.count} {word} {self.tag}" for _, one in scored[: self.count]}


@dataclass(frozen=True, slots=True)
class Tagged(Policy):
    """Everything that has a tag."""

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        return {one.id: "tagged" for one in newest_first if one.tags}


@dataclass(frozen=True, slots=True)
class These(Policy):
    """Just these, by their ids."""

    ids: frozenset[str]
    why: str

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        return {one.id: self.why for one in newest_first if one.id in self.ids}


@dataclass(frozen=True, slots=True)
class ForReason(Policy):
    """The newest N that were made for a reason."""

    reason: str
    count: int

    def __post_init__(self) -> None:
        _check_positive("for reason", self.count)

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        made = [one for one in newest_first if one.reason == self.reason]
        return {one.id: f"last {self.count} for {self.reason!r}" for one in made[: self.count]}


@dataclass(frozen=True, slots=True)
class MaxBytes(Policy):
    """The newest whose added bytes together fit into a budget."""

    budget: int

    def __post_init__(self) -> None:
        _check_positive("max bytes", self.budget)

    def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> Reasons:
        kept: Reasons = {}
        used = 0
        for one in newest_first:
            used += one.stored_bytes
            if used > self.budget:
                break
            kept[one.id] = f"within {self.budget} byte{'' if self.budget == 1 else 's'}"
        return kept


@dataclass(frozen=True, slots=True)
class Decision:
    """What to keep, with reasons, and what to remove; both newest first."""

    kept: tuple[tuple[Checkpoint, str], ...]
    removed: tuple[Checkpoint, ...]


def believable_times(
    oldest_first: Sequence[tuple[Checkpoint, bool]], now: datetime
) -> dict[str, datetime]:
    """When each checkpoint was made, at the latest. Takes the checkpoints of one subject in the
    log's order, each with whether it was imported. One that was imported was not made after `now`,
    nor after the next checkpoint that was made here: where its time says so, its maker's clock was
    ahead, and it would count as the newest for as long as that."""
    found: dict[str, datetime] = {}
    limit = now
    for one, imported in reversed(oldest_first):
        if imported:
            found[one.id] = min(one.time, limit)
        else:
            found[one.id] = limit = one.time
    return found


def decide(
    checkpoints: Sequence[Checkpoint], policy: Policy, head: str | None, now: datetime
) -> Decision:
    """Apply a policy to the checkpoints of one subject."""
    newest_first = sorted(checkpoints, key=lambda one: (one.time, one.sequence), reverse=True)
    wanted = policy.keep(newest_first, now)
    kept: list[tuple[Checkpoint, str]] = []
    removed: list[Checkpoint] = []
    for position, one in enumerate(newest_first):
        always = [
            why
            for why, holds in (
                ("newest", position == 0),
                ("head", one.id == head),
                ("pinned", one.pinned),
            )
            if holds
        ]
        why = ", ".join([*always, *([wanted[one.id]] if one.id in wanted else [])])
        if why:
            kept.append((one, why))
        else:
            removed.append(one)
    return Decision(tuple(kept), tuple(removed))


def _newest_of_each(
    newest_first: Sequence[Checkpoint],
    slot: Callable[[Checkpoint], object],
    limit: int | None,
    why: str,
) -> Reasons:
    kept: Reasons = {}
    seen: set[object] = set()
    for one in newest_first:
        if limit is not None and len(kept) >= limit:
            break
        if (found := slot(one)) not in seen:
            kept[one.id] = why
            seen.add(found)
    return kept


def _score(one: Checkpoint, tag: str) -> float | None:
    try:
        score = float(one.tags[tag])
    except (KeyError, ValueError):
        return None
    return score if score == score else None  # a NaN is no score


def _in_words(span: timedelta) -> str:
    """`2 days`, `36 hours`, `90 seconds`: the largest unit that says it exactly."""
    seconds = span.total_seconds()
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length and not seconds % length:
            count = int(seconds // length)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{seconds:g} seconds"


def _check_positive(what: str, value: float) -> None:
    if value <= 0:
        raise BadInput(f"retention: {what} must be more than 0, not {value:g}")


DEFAULT: Policy = Last(50) | Tagged()
