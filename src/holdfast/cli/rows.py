"""Checkpoints as rows of a table and as single lines."""

from __future__ import annotations

from datetime import datetime

from holdfast.model.checkpoint import Checkpoint
from holdfast.view.table import Column
from holdfast.view.words import age, notes, printable, size, stage

CHECKPOINT_COLUMNS = (
    Column("ID", "yellow"),
    Column("SUBJECT", "bold", cut=2),
    Column("REASON", cut=1),
    Column("STAGE", cut=1, optional=True),
    Column("WHEN", "dim"),
    Column("SIZE", justify="right"),
    Column("NOTES", "cyan", cut=1),
)


def checkpoint_row(checkpoint: Checkpoint, now: datetime, head: bool) -> tuple[str, ...]:
    return (
        checkpoint.short,
        str(checkpoint.subject),
        checkpoint.reason,
        stage(checkpoint),
        age(checkpoint.time, now),
        size(checkpoint.size_bytes),
        ", ".join(notes(checkpoint, head)),
    )


def line(checkpoint: Checkpoint) -> str:
    """One checkpoint in one line: `1a2b3c4d state/demo (manual)`."""
    return (
        f"{checkpoint.short} {printable(str(checkpoint.subject))} ({printable(checkpoint.reason)})"
    )
