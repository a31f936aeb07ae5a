"""What the tools give; their schemas come from here, and clients check answers against them."""

from __future__ import annotations

from typing import Any, Literal, Self

from msgspec import Struct

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.report import Report

CUT = 50_000  # characters of one stream


class Moment(Struct, frozen=True, kw_only=True):
    """A checkpoint."""

    id: str
    short: str
    subject: str
    reason: str = ""
    time: str = ""
    size_bytes: int = 0
    stored_bytes: int = 0
    uri: str

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        return cls.read(
            {
                "id": checkpoint.id,
                "short": checkpoint.short,
                "reason": checkpoint.reason,
                "time": moment.to_text(checkpoint.time),
                "size_bytes": checkpoint.size_bytes,
                "stored_bytes": checkpoint.stored_bytes,
            },
            str(checkpoint.subject),
        )

    @classmethod
    def read(cls, told: dict[str, Any], subject: str) -> Self:
        """From what a server says of a checkpoint, under the name that the client knows."""
        known = {name: told[name] for name in cls.__struct_fields__ if name in told}
        known |= {"subject": subject, "uri": f"checkpoint://{subject}/{told['id']}"}
        return cls(**known)


class Error(Struct, frozen=True, kw_only=True):
    """What code raised, or what ended it."""

    type: str
    message: str
    traceback: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """What every tool gives."""

    subject: str


class Executed(Answer, frozen=True):
    """A finished execution."""

    ok: bool
    value: Any = None
    text: str = ""
    stdout: str = ""
    stderr: str = ""
    error: Error | None = None
    exit_code: int | None = None
    seconds: float = 0.0
    truncated: bool = False
    masked: int = 0
    checkpoint: Moment | None = None
    unsaved: str | None = None
    resumed_from: str | None = None


class Kept(Answer, frozen=True):
    """A checkpoint that was made."""

    checkpoint: Moment


class ReportItem(Struct, frozen=True, kw_only=True):
    """Something that did not come back."""

    name: str
    outcome: Literal["exact", "rebuilt", "placeholder", "skipped"]
    reason: str


class Moved(Answer, frozen=True):
    """Where a subject went."""

    checkpoint: Moment
    came_back: int = 0
    report: tuple[ReportItem, ...] = ()

    @classmethod
    def with_report(cls, subject: str, at: Moment, report: Report) -> Self:
        lost = tuple(
            ReportItem(name=item.name, outcome=item.outcome, reason=item.reason)
            for item in report.items
            if item.outcome in ("placeholder", "skipped")
        )
        back = len(report.items) - len(lost)
        return cls(subject=subject, checkpoint=at, came_back=back, report=lost)


class Known(Struct, frozen=True, kw_only=True):
    """A subject, and where it stands."""

    subject: str
    checkpoints: int
    head: str | None = None
    running: bool = False


class Listed(Answer, frozen=True):
    """What there is, newest first."""

    subjects: tuple[Known, ...] = ()
    checkpoints: tuple[Moment, ...] = ()


class Compared(Answer, frozen=True):
    """What changed; as `GET /v1/diff` says it."""

    before: str
    after: str
    parts: tuple[dict[str, Any], ...] = ()
    variables: tuple[dict[str, Any], ...] | None = None
    values: tuple[dict[str, Any], ...] = ()
    more_values: int = 0

    @classmethod
    def read(cls, told: dict[str, Any], subject: str) -> Self:
        variables = told.get("variables")
        return cls(
            subject=subject,
            before=told["before"],
            after=told["after"],
            parts=tuple(told["parts"]),
            variables=None if variables is None else tuple(variables),
            values=tuple(told["values"]),
            more_values=told["more_values"],
        )


class FileRead(Answer, frozen=True):
    """A file, or a piece of it."""

    path: str
    content: str
    encoding: Literal["text", "base64"]
    size: int
    offset: int
    complete: bool


class FileWritten(Answer, frozen=True):
    """A file that was replaced."""

    path: str
    size: int
