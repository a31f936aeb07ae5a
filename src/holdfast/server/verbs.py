"""The verbs over HTTP: one table, from which the routes and the OpenAPI description both come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.model.errors import BadInput
from holdfast.model.subject import Subject
from holdfast.server import shapes
from holdfast.server.crossing import Crossing

if TYPE_CHECKING:
    from holdfast.store import Store

MAX_BODY = 64 * 1024
Text = Annotated[str, Meta(min_length=1, max_length=1000)]


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No body, or an empty object."""


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


Act = Callable[["Store", Mapping[str, str], Struct], dict[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One verb on one path. `act` is blocking and runs in a thread."""

    name: str
    method: str
    path: str
    summary: str
    answer: str  # a schema of openapi.py
    act: Act
    body: type[Struct] | None = None
    query: tuple[str, ...] = field(default=())

    def route(self, ask: Crossing) -> Route:
        async def endpoint(request: Request) -> Response:
            body = await read_body(request, self.body) if self.body else Nothing()
            given = {**request.path_params}
            for name in self.query:
                if name not in request.query_params:
                    raise BadInput(f"the parameter {name} is missing")
                given[name] = request.query_params[name]
            return JSONResponse(await ask(lambda store: self.act(store, given, body)))

        return Route(self.path, endpoint, methods=[self.method], name=self.name)


async def whole_body(request: Request, most: int = MAX_BODY) -> bytes:
    """Raises BadInput when it is too long."""
    body = bytearray()
    async for block in request.stream():
        body += block
        if len(body) > most:
            raise BadInput(f"the body is longer than {most} bytes")
    return bytes(body)


async def read_body(request: Request, kind: type[Struct], most: int = MAX_BODY) -> Struct:
    """The body as what it must be; an absent one is all defaults. Raises BadInput."""
    body = await whole_body(request, most)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInput(f"the body cannot be used: {error}") from None


def _subject(given: Mapping[str, str]) -> Subject:
    return Subject.parse(f"{given['kind']}/{given['name']}")


def _restore(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    assert isinstance(body, Trust)
    return {"checkpoint": shapes.checkpoint(store.restore(given["id"], trust=body.trust))}


def _fork(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    assert isinstance(body, Fork)
    return {"checkpoint": shapes.checkpoint(store.fork(given["id"], body.name, trust=body.trust))}


def _pin(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return {"checkpoint": shapes.checkpoint(store.pin(given["id"]))}


def _unpin(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return {"checkpoint": shapes.checkpoint(store.unpin(given["id"]))}


def _tag(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    assert isinstance(body, Tag)
    return {"checkpoint": shapes.checkpoint(store.tag(given["id"], body.name, body.value))}


def _delete(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return shapes.checkpoints(store.delete(given["id"]))


def _rollback(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    assert isinstance(body, Rollback)
    moved = store.rollback(_subject(given), body.to, trust=body.trust)
    return {"checkpoint": shapes.checkpoint(moved)}


def _undo(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return {"move": shapes.move(store.undo(_subject(given)))}


def _diff(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    from holdfast.server.contents import difference
    from holdfast.view.variables import compare

    found = store.diff(given["before"], given["after"])
    return difference(found, compare(store, found))


def _verify(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    assert isinstance(body, Verify)
    from holdfast.view import verified

    found = store.verify(deep=body.deep)
    verified.note(store.url, found)
    return shapes.verification(found)


def _prune(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    from holdfast.store import retention

    assert isinstance(body, Prune)
    only = None if body.subject is None else Subject.parse(body.subject)
    policy = retention.Either(retention.Last(body.keep_last), retention.Tagged())
    return shapes.pruning(store.prune(policy, only, dry_run=body.dry_run))


ONE, SUBJECT = "/v1/checkpoints/{id}", "/v1/subjects/{kind}/{name:path}"

OPERATIONS = (
    Operation(
        name="restore",
        method="POST",
        path=f"{ONE}/restore",
        summary="Move the head of a checkpoint's subject to it",
        answer="OneCheckpoint",
        act=_restore,
        body=Trust,
    ),
    Operation(
        name="fork",
        method="POST",
        path=f"{ONE}/fork",
        summary="Begin a new subject with a checkpoint's content",
        answer="OneCheckpoint",
        act=_fork,
        body=Fork,
    ),
    Operation(
        name="pin",
        method="POST",
        path=f"{ONE}/pin",
        summary="Keep a checkpoint whatever retention says",
        answer="OneCheckpoint",
        act=_pin,
        body=Nothing,
    ),
    Operation(
        name="unpin",
        method="POST",
        path=f"{ONE}/unpin",
        summary="Let retention decide again",
        answer="OneCheckpoint",
        act=_unpin,
        body=Nothing,
    ),
    Operation(
        name="tag",
        method="POST",
        path=f"{ONE}/tags",
        summary="Give a checkpoint a name",
        answer="OneCheckpoint",
        act=_tag,
        body=Tag,
    ),
    Operation(
        name="delete",
        method="DELETE",
        path=ONE,
        summary="Drop a checkpoint",
        answer="Checkpoints",
        act=_delete,
    ),
    Operation(
        name="rollback",
        method="POST",
        path=f"{SUBJECT}/rollback",
        summary="Go back to an earlier checkpoint of a subject",
        answer="OneCheckpoint",
        act=_rollback,
        body=Rollback,
    ),
    Operation(
        name="undo",
        method="POST",
        path=f"{SUBJECT}/undo",
        summary="Take back the last move of a subject's head",
        answer="OneMove",
        act=_undo,
        body=Nothing,
    ),
    Operation(
        name="diff",
        method="GET",
        path="/v1/diff",
        summary="What changed from one checkpoint to another",
        answer="Diff",
        act=_diff,
        query=("before", "after"),
    ),
    Operation(
        name="verify",
        method="POST",
        path="/v1/verify",
        summary="Check that the store holds what was written",
        answer="Verification",
        act=_verify,
        body=Verify,
    ),
    Operation(
        name="prune",
        method="POST",
        path="/v1/prune",
        summary="Remove what retention does not keep; tagged and pinned ones stay",
        answer="Pruning",
        act=_prune,
        body=Prune,
    ),
)
