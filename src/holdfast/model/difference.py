"""Differences: where two JSON-like values are not the same. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


class _Absent:
    """Stands for a value that is not there; `None` is a value."""

    def __repr__(self) -> str:
        return "<absent>"


ABSENT = _Absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """One place in a structure; `before` or `after` is ABSENT where there was or is nothing."""

    part: str
    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        place = f"{self.part}: {self.path}" if self.path else self.part
        return f"{place}: {self.before!r} -> {self.after!r}"


def compare_values(part: str, before: Any, after: Any, path: str = "") -> Iterator[ValueChange]:
    """Every place where two JSON-like values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            step = f"{path}.{key}" if path else str(key)
            yield from compare_values(part, before.get(key, ABSENT), after.get(key, ABSENT), step)
    elif isinstance(before, list) and isinstance(after, list):
        for i in range(max(len(before), len(after))):
            left = before[i] if i < len(before) else ABSENT
            right = after[i] if i < len(after) else ABSENT
            yield from compare_values(part, left, right, f"{path}[{i}]")
    elif type(before) is not type(after) or before != after:
        # NaN differs from itself; the same NaN on both sides is no change.
        if before != before and after != after:
            return
        yield ValueChange(part=part, path=path, before=before, after=after)
