"""Documents: what a file of a session says, and how older files are read. Pure.

A checkpoint and the saved state have the same fields. Their JSON is indented, so that people
can read it, and ends with a line that is only `}`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.model import moment
from holdfast.model.errors import BadInput, Corrupt, Unsupported
from holdfast.model.secrets import Rule
from holdfast.state.values import JSON, encode
from holdfast.state.versions import FIRST

SCHEMA_VERSION = 1
UNKNOWN_STAGE = "unknown"


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a session's state. `state_info` holds typed values as JSON."""

    session_id: str
    timestamp: str
    reason: str
    stage: str
    # JSON, which msgspec cannot say as a recursive type of its own.
    state_info: dict[str, Any]
    parent_session: str | None = None
    parent: str | None = None
    rollback_of: str | None = None
    # Of the application's own schema; the other one is that of this document.
    state_version: int = FIRST
    schema_version: int = SCHEMA_VERSION
    # Whether state_info has any typed values at all. A file does not say: people may edit it.
    typed: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def time(self) -> datetime:
        """When; raises BadInput when the text is no time."""
        return moment.from_text(self.timestamp)

    def at(self, time: datetime) -> Document:
        """The same, said at that time."""
        return msgspec.structs.replace(self, timestamp=moment.to_text(time))

    def after(self, parent: str | None) -> Document:
        """The same as a descendant of that checkpoint."""
        return msgspec.structs.replace(self, parent=parent)


def new(
    *,
    session_id: str,
    reason: str,
    stage: str,
    state_info: dict[str, JSON],
    parent_session: str | None,
    parent: str | None = None,
    state_version: int = FIRST,
    typed: bool | msgspec.UnsetType = msgspec.UNSET,
) -> Document:
    """A document that has not been written yet, so it has no time."""
    return Document(
        session_id=session_id,
        timestamp="",
        reason=reason,
        stage=stage,
        state_info=state_info,
        parent_session=parent_session,
        parent=parent,
        state_version=state_version,
        typed=typed,
    )


def stage_of(value: object) -> str:
    """What a checkpoint says of the stage. Raises BadInput."""
    if value is None:
        return UNKNOWN_STAGE
    return check_text("the stage", str(value.value if isinstance(value, enum.Enum) else value))


def parent_of(value: object) -> str | None:
    """What a checkpoint says of the session that this one came from. Raises BadInput."""
    if value is not None and not isinstance(value, str):
        raise BadInput(f"parent_session: a session id is text, not {value!r}")
    return check_text("parent_session", value) if value else None


def check_text(what: str, text: object) -> str:
    """The text itself. Raises BadInput for what is none, or could not be written."""
    if not isinstance(text, str):
        raise BadInput(f"{what} is text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{what} holds half a character (a lone surrogate): {text!r}") from None
    return text


def to_bytes(document: Document) -> bytes:
    """Indented UTF-8 JSON."""
    said = msgspec.structs.replace(document, typed=msgspec.UNSET)
    return msgspec.json.format(msgspec.json.encode(said), indent=2) + b"\n"


def from_bytes(data: bytes, session_id: str) -> Document:
    """Read a file of that session, whatever version wrote it.

    Raises Corrupt when it is not complete or not the session's, Unsupported when a newer
    version wrote it.
    """
    try:
        raw = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"not complete JSON: {error}") from None
    # Quicker than looking at every value; an escaped dollar sign is somebody's own idea.
    typed = b"$type" in data or b"\\u0024" in data
    return from_raw({**raw, "typed": typed}, session_id)


def from_raw(raw: dict[str, Any], session_id: str) -> Document:
    """The same for JSON that has been read already."""
    try:
        document = msgspec.convert(_migrate(raw), Document)
    except msgspec.ValidationError as error:
        raise Corrupt(f"not a state: {error}") from None
    if document.session_id != session_id:
        raise Corrupt(f"it belongs to the session {document.session_id!r}")
    return document


def _migrate(raw: dict[str, Any]) -> dict[str, Any]:
    version = raw.get("schema_version", 0)
    if not isinstance(version, int) or version < 0:
        raise Corrupt(f"not a schema version: {version!r}")
    if version > SCHEMA_VERSION:
        raise Unsupported(
            f"written with schema {version}, this Holdfast knows up to {SCHEMA_VERSION}",
            hint="upgrade Holdfast to read it",
        )
    while version < SCHEMA_VERSION:
        raw = MIGRATIONS[version](raw)
        version += 1
    return raw


def _from_plain_json(raw: dict[str, Any]) -> dict[str, Any]:
    """Version 0: plain JSON without a version or lineage, in which `$type` was an ordinary key."""
    state = raw.get("state_info")
    if isinstance(state, dict):
        state = encode(
            state, rule=Rule.of(True)
        ).state  # what stands in a file is no secret any more
    return {**raw, "state_info": state, "schema_version": 1}


# From each version to the next one.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {0: _from_plain_json}
