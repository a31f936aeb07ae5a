"""Values as words for people: sizes, ages, and text that cannot play tricks on a terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from holdfast.model.amounts import size
from holdfast.model.checkpoint import Checkpoint

__all__ = ["age", "count", "day", "notes", "printable", "size", "stage"]

# Control characters can move the cursor and set titles; the bidirectional overrides make a name
# read as another one. Both may arrive in a reason or tag that somebody else wrote.
_TRICKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


# What `holdfast run` tells the versions of a cell and the script's arguments apart by.
_MARKS = re.compile(r"(cell [0-9]+ of [0-9]+) #[0-9a-f]{16}(?: with #[0-9a-f]{16})?")


def stage(checkpoint: Checkpoint) -> str:
    """The stage of a checkpoint, where there is one; of a script's cell without its marks."""
    text = checkpoint.stage or ""
    found = _MARKS.fullmatch(text)
    return found[1] if found else text


def printable(text: str) -> str:
    """The text on one line, with every character that could act on a terminal spelled out."""
    return _TRICKS.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def age(time: datetime, now: datetime) -> str:
    """How long ago; the date itself once it is more than a month."""
    seconds = (now - time).total_seconds()
    if seconds < 0:
        return day(time)
    for limit, length, word in (
        (60, 1, "s"),
        (3600, 60, "min"),
        (86400, 3600, "h"),
        (31 * 86400, 86400, "d"),
    ):
        if seconds < limit:
            return f"{int(seconds // length)} {word} ago"
    return day(time)


def day(time: datetime) -> str:
    """`2026-01-02 03:04`, in UTC."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def count(number: int, noun: str) -> str:
    """`1 checkpoint`, `2 checkpoints`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def notes(checkpoint: Checkpoint, head: bool = False) -> list[str]:
    """What is worth a word about a checkpoint: `head`, `pinned`, `best=0.93`."""
    return [
        *(["head"] if head else []),
        *(["pinned"] if checkpoint.pinned else []),
        *(["foreign"] if checkpoint.foreign else []),
        *(["rollback"] if checkpoint.rollback_of else []),
        *(f"{name}={value}" if value else name for name, value in checkpoint.tags.items()),
    ]
