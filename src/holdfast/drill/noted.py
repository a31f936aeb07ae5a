"""What came of the last drills of each store: a note in HOLDFAST_HOME, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.model import moment
from holdfast.view.notes import Notes

if TYPE_CHECKING:
    from holdfast.drill.drill import Drill

_MOST = 1000  # subjects of a store
_notes = Notes("drilled.json")


def note(store: str, done: Sequence[Drill]) -> None:
    """Remember drills of the store with this URL, the last of each subject."""
    before = last(store)
    now = moment.to_text(moment.now())
    drills: dict[str, Any] = {each["subject"]: each for each in before["drills"]} if before else {}
    for each in done:
        subject = str(each.checkpoint.subject)
        drills.pop(subject, None)  # the newest come last
        drills[subject] = {
            "subject": subject,
            "checkpoint": each.checkpoint.id,
            "short": each.checkpoint.short,
            "time": now,
            "ok": each.ok,
            "tried": each.tried,
            "problems": list(each.problems)[:20],
            "notes": list(each.notes)[:20],
            "seconds": round(each.seconds, 3),
        }
    _notes.keep(store, {"time": now, "drills": list(drills.values())[-_MOST:]})


def last(store: str) -> dict[str, Any] | None:
    """When there was a drill last, and what came of the last drill of each subject."""
    return _notes.read(store)
