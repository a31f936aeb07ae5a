"""The verbs of the store over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from holdfast.model.subject import Subject
from holdfast.sandbox import keeping
from holdfast.server import shapes
from holdfast.server.operations import Nothing, Table, Text

if TYPE_CHECKING:
    from holdfast.store import Store

ONE, SUBJECT = "/v1/checkpoints/{id}", "/v1/subjects/{kind}/{name:path}"
VERBS = Table()


class Trust(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a checkpoint that an unknown key signed is accepted."""

    trust: bool = False


class Fork(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new subject's name."""

    name: Text
    trust: bool = False


class Rollback(Struct, frozen=True, forbid_unknown_fields=True):
    """Which checkpoint to go back to; without one, the head's parent."""

    to: Text | None = None
    trust: bool = False


class Tag(Struct, frozen=True, forbid_unknown_fields=True):
    """A name for a checkpoint."""

    name: Text
    value: Annotated[str, Meta(max_length=1000)] = ""


class Verify(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether every byte is read."""

    deep: bool = False


class Prune(Struct, frozen=True, forbid_unknown_fields=True):
    """What to keep, and whether to only say what would be done."""

    keep_last: Annotated[int, Meta(ge=1, le=1_000_000)] = 50
    subject: Text | None = None
    dry_run: bool = False


def _subject(given: Mapping[str, str]) -> Subject:
    return Subject.parse(f"{given['kind']}/{given['name']}")


@VERBS.verb(
    "POST",
    f"{ONE}/restore",
    "Move the head of a checkpoint's subject to it",
    answer="OneCheckpoint",
    body=Trust,
)
def restore(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    assert isinstance(body, Trust)
    return {"checkpoint": shapes.checkpoint(store.restore(given["id"], trust=body.trust))}


@VERBS.verb(
    "POST",
    f"{ONE}/fork",
    "Begin a new subject with a checkpoint's content",
    answer="OneCheckpoint",
    body=Fork,
)
def fork(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    assert isinstance(body, Fork)
    origin = store.resolve(given["id"])
    keeping.check_copy(origin, body.name)
    return {"checkpoint": shapes.checkpoint(store.fork(origin, body.name, trust=body.trust))}


@VERBS.verb(
    "POST",
    f"{ONE}/pin",
    "Keep a checkpoint whatever retention says",
    answer="OneCheckpoint",
    body=Nothing,
)
def pin(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return {"checkpoint": shapes.checkpoint(store.pin(given["id"]))}


@VERBS.verb(
    "POST",
    f"{ONE}/unpin",
    "Let retention decide again",
    answer="OneCheckpoint",
    body=Nothing,
)
def unpin(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return {"checkpoint": shapes.checkpoint(store.unpin(given["id"]))}


@VERBS.verb(
    "POST",
    f"{ONE}/tags",
    "Give a checkpoint a name",
    answer="OneCheckpoint",
    body=Tag,
)
def tag(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    assert isinstance(body, Tag)
    return {"checkpoint": shapes.checkpoint(store.tag(given["id"], body.name, body.value))}


@VERBS.verb(
    "DELETE",
    ONE,
    "Drop a checkpoint",
    answer="Checkpoints",
)
def delete(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return shapes.checkpoints(store.delete(given["id"]))


@VERBS.verb(
    "POST",
    f"{SUBJECT}/rollback",
    "Go back to an earlier checkpoint of a subject",
    answer="OneCheckpoint",
    body=Rollback,
)
def rollback(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    assert isinstance(body, Rollback)
    moved = store.rollback(_subject(given), body.to, trust=body.trust)
    return {"checkpoint": shapes.checkpoint(moved)}


@VERBS.verb(
    "POST",
    f"{SUBJECT}/undo",
    "Take back the last move of a subject's head",
    answer="OneMove",
    body=Nothing,
)
def undo(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return {"move": shapes.move(store.undo(_subject(given)))}


@VERBS.verb(
    "GET",
    "/v1/diff",
    "What changed from one checkpoint to another",
    answer="Diff",
    query=("before", "after"),
)
def diff(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    from holdfast.server.contents import difference
    from holdfast.session.variables import compare

    found = store.diff(given["before"], given["after"])
    return difference(found, compare(store, found))


@VERBS.verb(
    "POST",
    "/v1/verify",
    "Check that the store holds what was written",
    answer="Verification",
    body=Verify,
)
def verify(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    assert isinstance(body, Verify)
    from holdfast.view import verified

    found = store.verify(deep=body.deep)
    verified.note(store.url, found)
    return shapes.verification(found)


@VERBS.verb(
    "POST",
    "/v1/prune",
    "Remove what retention does not keep; tagged and pinned ones stay",
    answer="Pruning",
    body=Prune,
)
def prune(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    from holdfast.store import retention

    assert isinstance(body, Prune)
    only = None if body.subject is None else Subject.parse(body.subject)
    policy = retention.Either(retention.Last(body.keep_last), retention.Tagged())
    return shapes.pruning(store.prune(policy, only, dry_run=body.dry_run))
