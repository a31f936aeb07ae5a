"""When each store was last verified, and what came of it."""

from __future__ import annotations

from holdfast.model import moment
from holdfast.model.report import Verification
from holdfast.view.notes import Notes

_notes = Notes("verified.json")


def note(store: str, found: Verification) -> None:
    """Remember a verification of the store with this URL."""
    _notes.keep(
        store,
        {
            "time": moment.to_text(moment.now()),
            "ok": found.ok,
            "deep": found.deep,
            "problems": len(found.problems),
            "checkpoints": found.checkpoints,
        },
    )


def last(store: str) -> dict[str, object] | None:
    """The last verification of that store; None when none is known."""
    return _notes.read(store)
