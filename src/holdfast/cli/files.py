"""States that are kept as files, in the directories that the registry knows."""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.cli.table import Column, table
from holdfast.model.errors import from_os_error
from holdfast.model.home import home
from holdfast.model.moment import now, to_text
from holdfast.server.words import age, size
from holdfast.state import StateCheckpoint, directories
from holdfast.state.files import Directory
from holdfast.state.names import session_ids

_COLUMNS = (
    Column("ID", "yellow"),
    Column("SUBJECT", "bold", cut=2),
    Column("REASON", cut=1),
    Column("STAGE", cut=1, optional=True),
    Column("WHEN", "dim"),
    Column("SIZE", justify="right"),
    Column("FILE", "dim", cut=1),
)


def find(environ: Mapping[str, str]) -> list[StateCheckpoint]:
    """All checkpoints that are files, newest first."""
    found = []
    for folder in directories(home(environ)):
        try:
            names = os.listdir(folder)
        except OSError as error:
            raise from_os_error(error, "listing states") from error
        for session in session_ids(names):
            found += Directory(folder, session).checkpoints()
    return sorted(found, key=lambda each: each.time, reverse=True)


def shape(checkpoint: StateCheckpoint) -> dict[str, object]:
    return {
        "id": checkpoint.id,
        "subject": f"state/{checkpoint.session_id}",
        "kind": "state",
        "name": checkpoint.session_id,
        "reason": checkpoint.reason,
        "stage": checkpoint.stage,
        "time": to_text(checkpoint.time),
        "size_bytes": checkpoint.size_bytes,
        "rollback_of": checkpoint.rollback_of,
        "file": str(checkpoint.path),
    }


def page(checkpoints: list[StateCheckpoint]) -> str:
    if not checkpoints:
        return ""
    time = now()
    return table(
        _COLUMNS,
        (
            (
                each.id,
                f"state/{each.session_id}",
                each.reason,
                each.stage,
                age(each.time, time),
                size(each.size_bytes),
                str(each.path),
            )
            for each in checkpoints
        ),
    )
