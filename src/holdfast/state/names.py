"""Names: which session ids and apps are allowed, and what their files are called. Pure.

A session id becomes part of a file name and of a subject, so one rule covers both places.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from holdfast.model.errors import BadInput
from holdfast.model.subject import Subject

_STAMP = r"\d{8}_\d{6}_\d{6}"
_MARK = "_checkpoint_"
# 255 bytes a file name, less the mark, the stamp, `.json`, a leading dot and `.tmp`.
MAX_SESSION_ID = 200
_ENDS_LIKE_A_CHECKPOINT = re.compile(_MARK + _STAMP + r"\Z")
_FIELDS = re.compile(
    r"(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)_(\d{6})", re.ASCII
)  # strptime would do, ten times slower
_APP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def check_session_id(session_id: object) -> str:
    """The id itself when it may be used; raises BadInput otherwise."""
    if not isinstance(session_id, str):
        raise BadInput(f"a session id is text, not {type(session_id).__name__}")
    problem = _problem(session_id)
    if problem:
        raise BadInput(
            f"bad session id {session_id!r}: {problem}",
            hint=f"one name of at most {MAX_SESSION_ID} bytes, e.g. session_12345",
        )
    Subject("state", session_id)  # the same id must be usable on a store
    return session_id


def _problem(session_id: str) -> str | None:
    try:
        size = len(session_id.encode("utf-8"))
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if not session_id:
        return "it is empty"
    if "/" in session_id or "\\" in session_id or ".." in session_id:
        return "it must not be a path"
    if session_id.startswith("."):
        return "names with a leading dot are kept for locks and unfinished files"
    if size > MAX_SESSION_ID:
        return f"it has {size} bytes"
    if _ENDS_LIKE_A_CHECKPOINT.search(session_id):
        # Its saved state would have the file name of another session's checkpoint.
        return "it ends like the file name of a checkpoint"
    return None


def check_app(app: object) -> str:
    """The app's name when it can be part of a directory's name; raises BadInput otherwise."""
    if not isinstance(app, str) or not _APP.fullmatch(app) or ".." in app:
        raise BadInput(
            f"bad app name: {app!r}", hint="letters, digits, dots, dashes and underscores, e.g. edi"
        )
    return app


def stamp(time: datetime) -> str:
    """A checkpoint's id in a directory: `20260102_030405_000006`, UTC."""
    utc = time.astimezone(UTC)
    # strftime pads years below 1000 differently from platform to platform.
    return f"{utc.year:04d}" + utc.strftime("%m%d_%H%M%S_%f")


def time_of(stamp_text: str) -> datetime | None:
    """The time in a stamp, or None when it is not one."""
    found = _FIELDS.fullmatch(stamp_text)
    if found is None:
        return None
    year, month, day, hour, minute, second, micro = map(int, found.groups())
    try:
        return datetime(year, month, day, hour, minute, second, micro, UTC)
    except ValueError:
        return None


def checkpoint_file(session_id: str, stamp_text: str) -> str:
    return f"{session_id}{_MARK}{stamp_text}.json"


def state_file(session_id: str) -> str:
    return f"{session_id}.json"


def lock_file(session_id: str) -> str:
    return f".{session_id}.lock"


def unfinished(file_name: str) -> str:
    """What a file is called until it is complete. No listing takes it for a checkpoint."""
    return f".{file_name}.tmp"


def stamp_in(file_name: str, session_id: str) -> str | None:
    """The stamp in the name of one of the session's checkpoint files, else None.

    Compared part by part, never by a glob: `a_checkpoint_*` would also match the files of a
    session called `a_checkpoint_b`.
    """
    head = session_id + _MARK
    if not (file_name.startswith(head) and file_name.endswith(".json")):
        return None
    found = file_name[len(head) : -len(".json")]
    return found if time_of(found) else None


def is_unfinished(file_name: str, session_id: str) -> bool:
    """Is it the unfinished file of one of the session's checkpoints or of its saved state?"""
    if not (file_name.startswith(".") and file_name.endswith(".tmp")):
        return False
    final = file_name[1 : -len(".tmp")]
    return final == state_file(session_id) or stamp_in(final, session_id) is not None


def session_ids(file_names: list[str]) -> list[str]:
    """The sessions that have files among these, sorted: what a directory holds."""
    found = set()
    for name in file_names:
        if name.endswith(".json") and not name.startswith("."):
            found.add(_ENDS_LIKE_A_CHECKPOINT.sub("", name[: -len(".json")]))
    return sorted(found)
