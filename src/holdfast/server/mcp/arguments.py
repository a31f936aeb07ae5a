"""What the tools take; their schemas come from here."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

MOST_LISTED = 200
MOST_READ = 1_000_000  # bytes of a file in one answer
DAY = 86_400.0

Subject = Annotated[
    str | None,
    Meta(
        description="session/NAME (or NAME) for a Python session, sandbox/NAME for a sandbox;"
        " by default the session that the server was started for"
    ),
]
Reference = Annotated[
    str, Meta(min_length=1, max_length=300, description="an id, a short id, a tag, or ~2")
]
Path = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4096,
        description="in a session, relative to the workspace; in a sandbox, absolute",
    ),
]
Seconds = Annotated[
    float, Meta(gt=0, le=DAY, description="after which it is interrupted; by default 600")
]
Encoding = Annotated[
    Literal["text", "base64"], Meta(description="base64 for what is not UTF-8 text")
]


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every tool takes."""

    subject: Subject = None


class Execute(Arguments, frozen=True):
    """Code to run."""

    code: Annotated[str, Meta(description="what to run; the last expression's value is answered")]
    language: Annotated[Literal["python", "bash"], Meta(description="bash only in a sandbox")] = (
        "python"
    )
    timeout: Seconds | None = None


class Checkpoint(Arguments, frozen=True):
    """A moment to keep."""

    reason: Annotated[
        str, Meta(min_length=1, max_length=1000, description="why, in a few words")
    ] = "asked for by an agent"


class Restore(Arguments, frozen=True):
    """Where to go."""

    checkpoint: Reference


class Rollback(Arguments, frozen=True):
    """Where to go back to; without it, to before the last checkpoint."""

    to: Reference | None = None


class Fork(Arguments, frozen=True):
    """The name of the copy."""

    name: Annotated[str, Meta(min_length=1, max_length=200, description="of the new subject")]
    checkpoint: Reference | None = None  # by default this very moment


class List(Arguments, frozen=True):
    """How many."""

    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 20


class Diff(Arguments, frozen=True):
    """Which two checkpoints; by default the head's parent and the head."""

    before: Reference = "~1"
    after: Reference | None = None


class ReadFile(Arguments, frozen=True):
    """A file, or a piece of it."""

    path: Path
    encoding: Encoding = "text"
    offset: Annotated[int, Meta(ge=0, description="in bytes")] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_READ, description="in bytes")] = MOST_READ


class WriteFile(Arguments, frozen=True):
    """A file as it shall be."""

    path: Path
    content: str
    encoding: Encoding = "text"
