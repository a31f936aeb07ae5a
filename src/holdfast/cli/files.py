"""States that are kept as files, in the directories that the registry knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from holdfast.cli.invocation import Invocation
from holdfast.model.difference import ValueChange, compare_values
from holdfast.model.errors import BadInput, NotFound
from holdfast.model.home import home
from holdfast.model.moment import now, to_text
from holdfast.model.subject import Subject
from holdfast.state import StateCheckpoint, finding
from holdfast.state.finding import Kept
from holdfast.view.table import Column, table
from holdfast.view.words import age, printable, size

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
    found = [each for one in finding.sessions(home(environ)) for each in one.checkpoints()]
    return sorted(found, key=lambda each: each.time, reverse=True)


def meant(invocation: Invocation, text: str, insist: bool) -> Kept | None:
    """The checkpoint in a file that is meant, or None when one in the store is.

    A stamp is always a file's. A subject is the store's when the store has it. Raises NotFound.
    """
    place = home(invocation.environ)
    if insist or finding.is_stamp(text):
        return finding.find(text, place)
    subject = text.partition("~")[0]
    if not subject.startswith("state/") or _in_store(invocation, subject):
        return None
    try:
        finding.find_session(subject.removeprefix("state/"), place)
    except NotFound:
        return None  # let the store say so
    return finding.find(text, place)


def _in_store(invocation: Invocation, text: str) -> bool:
    try:
        with invocation.store() as store:
            return bool(store.history(Subject.parse(text)))
    except NotFound:
        return False


def show(invocation: Invocation, kept: Kept, part: str | None) -> None:
    """`holdfast show` of a file; its only part is the state."""
    from holdfast.view.values import to_json

    document = kept.read()
    if part is not None:
        if part != "state":
            raise NotFound(f"{kept.checkpoint.id} has no part {part!r}", hint="its parts: state")
        click.echo(to_json(document.state_info))
        return
    facts = [
        ("id", kept.checkpoint.id),
        ("subject", f"state/{document.session_id}"),
        ("reason", document.reason),
        ("stage", document.stage),
        ("time", f"{document.timestamp} ({age(kept.checkpoint.time, now())})"),
        ("size", size(kept.checkpoint.size_bytes)),
        ("parent", document.parent or ""),
        ("rollback of", document.rollback_of or ""),
        ("parent session", document.parent_session or ""),
        ("version", str(document.state_version)),
        ("file", str(kept.checkpoint.path)),
    ]
    columns = (Column("CHECKPOINT", "dim"), Column(kept.checkpoint.id, "default"))
    told = {
        "file": shape(kept.checkpoint),
        "parent": document.parent,
        "parent_session": document.parent_session,
        "version": document.state_version,
        "state": document.state_info,
    }
    invocation.show(
        told,
        lambda: (
            table(columns, [fact for fact in facts if fact[1]])
            + "\n\n"
            + to_json(document.state_info)
        ),
    )


def diff(
    invocation: Invocation,
    before: Kept,
    after: Kept,
    page: Callable[[tuple[ValueChange, ...]], str],
) -> None:
    """`holdfast diff` of two files."""
    from holdfast.cli.values import change_shape

    old, new = before.read(), after.read()
    found = tuple(compare_values("state", old.state_info, new.state_info))
    told: dict[str, Any] = {"before": before.checkpoint.id, "after": after.checkpoint.id}
    told |= {"parts": [], "values": [change_shape(each) for each in found], "variables": None}
    invocation.show(told, lambda: page(found))
    if not found:
        told_of = f"{before.checkpoint.id} and {after.checkpoint.id}"
        invocation.tell(f"{told_of} have the same content")


def rollback(invocation: Invocation, kept: Kept, to: str | None) -> None:
    """`holdfast rollback` of a session in files."""
    if "~" in kept.asked or finding.is_stamp(kept.asked):
        raise BadInput(
            f"{kept.asked!r} is a checkpoint, and a subject is needed here",
            hint=f"holdfast rollback state/{kept.directory.session_id} --to {kept.asked}",
        )
    target = None
    if to is not None:
        wanted = finding.find(to, home(invocation.environ)).checkpoint if "/" in to else None
        target = wanted or kept.directory.find(to)
        if target.session_id != kept.directory.session_id:
            raise BadInput(
                f"{to} is a checkpoint of state/{target.session_id}",
                hint="fork takes a checkpoint into a new session",
            )
    _moved(invocation, finding.rollback(kept.directory, target))


def fork(invocation: Invocation, kept: Kept, name: str) -> None:
    """`holdfast fork` of a checkpoint in a file, into the same directory."""
    _moved(invocation, finding.fork(kept, name))


def _moved(invocation: Invocation, made: StateCheckpoint) -> None:
    text = f"head: {made.id} state/{made.session_id} ({printable(made.reason)})"
    invocation.show({"file": shape(made)}, lambda: text)


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
