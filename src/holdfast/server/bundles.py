"""Bundles over HTTP, of whatever this server runs or keeps: all members together, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.bundle import Bundle, Member, record
from holdfast.bundle.heads import HeadMember
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Conflict, NotFound, UsageError
from holdfast.model.subject import Subject
from holdfast.oci.member import ContainerMember, runs_here
from holdfast.sandbox.member import SandboxMember
from holdfast.server import doors, shapes
from holdfast.server.crossing import Crossing
from holdfast.server.operations import Nothing, Text, read_body
from holdfast.server.sessions import Sessions
from holdfast.server.verbs import ONE
from holdfast.session.member import SessionMember

if TYPE_CHECKING:
    from holdfast.sandbox.fleet import Fleet
    from holdfast.store import Store

STAND_STILL_SECONDS = 300.0
Shape = dict[str, object]


class Make(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bundle's name, and the subjects that it binds."""

    name: Text
    members: Annotated[list[Text], Meta(min_length=1, max_length=100)]
    reason: Text = "manual"
    stage: Text | None = None


class Together(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a checkpoint that an unknown key signed is accepted."""

    trust: bool = False


class Bundles:
    """Binds what runs here as it runs, and everything else by its head."""

    def __init__(self, store: Store, fleet: Fleet | None, sessions: Sessions) -> None:
        self._store = store
        self._fleet = fleet
        self._sessions = sessions
        self._ask = Crossing(store)

    def routes(self) -> list[Route]:
        return [each.route(self) for each in BUNDLE_OPERATIONS]

    def runs(self, subject: Subject) -> bool:
        """Whether it runs on this server."""
        return not isinstance(self.member(subject), HeadMember)

    def member(self, subject: Subject) -> Member:
        """How a subject is bound here. Raises Unsupported."""
        if subject.kind == "sandbox" and self._fleet is not None:
            sandbox = self._fleet.live.get(subject.name)
            if sandbox is not None:
                return SandboxMember(self._fleet, sandbox)
        if subject.kind == "session":
            console = self._sessions.running_now(subject.name)
            if console is not None:
                return SessionMember(console.session)
        if subject.kind == "container" and runs_here(subject):
            return ContainerMember(self._store, subject)
        return HeadMember(self._store, subject)

    async def make(self, body: Make) -> Shape:
        bundle = self._bundle(body.name, [Subject.parse(each) for each in body.members])
        made = await _in_time(bundle.checkpoint(body.reason, body.stage))
        return {"checkpoint": shapes.checkpoint(made)}

    async def restore(self, reference: str, body: Together) -> Shape:
        target, bound = await self._ask(lambda store: _bound(store, reference, body.trust))
        subjects = [Subject.parse(each.subject) for each in bound.members]
        bundle = self._bundle(target.subject.name, subjects)
        done = await _in_time(bundle.restore(target, trust=body.trust))
        return {"checkpoint": shapes.checkpoint(done)}

    async def members(self, reference: str) -> Shape:
        def look(store: Store) -> list[Shape]:
            _, bound = _bound(store, reference, trust=False)
            kept = {each.id: each for each in store.list()}
            return [
                {
                    "subject": each.subject,
                    "checkpoint": each.checkpoint,
                    "short": kept[each.checkpoint].short if each.checkpoint in kept else None,
                    "running": self.runs(Subject.parse(each.subject)),
                }
                for each in bound.members
            ]

        return {"members": await self._ask(look)}

    def _bundle(self, name: str, subjects: list[Subject]) -> Bundle:
        for subject in subjects:
            if subject.kind == "bundle":
                raise UsageError(f"{subject} is a bundle, which no bundle binds")
        return Bundle(name, [self.member(each) for each in subjects], store=self._store)


def _bound(store: Store, reference: str, trust: bool) -> tuple[Checkpoint, record.Record]:
    found = store.resolve(reference)
    if found.subject.kind != "bundle":
        raise NotFound(f"{found.short} of {found.subject} is no bundle")
    return found, record.read(store, found, trust)


async def _in_time(work: Awaitable[Checkpoint]) -> Checkpoint:
    try:
        async with asyncio.timeout(STAND_STILL_SECONDS):
            return await work
    except TimeoutError:
        raise Conflict(
            "the members did not all stand still in time, and go on as they were",
            hint="interrupt what runs in them, then try again",
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleOperation:
    """One verb on bundles."""

    name: str
    path: str
    summary: str
    answer: str  # a schema of openapi.py
    act: Callable[[Bundles, str, Struct], Awaitable[Shape]]
    method: str = "POST"
    body: type[Struct] | None = None
    query: tuple[str, ...] = ()

    def route(self, bundles: Bundles) -> Route:
        async def endpoint(request: Request) -> Response:
            body = await read_body(request, self.body) if self.body else Nothing()
            return JSONResponse(await self.act(bundles, request.path_params.get("id", ""), body))

        return doors.route(
            self.path,
            endpoint,
            access=doors.Access.OWNER,
            subject="subjects of the store, and what of them runs on this server",
            methods=[self.method],
            name=self.name,
        )


async def _make(bundles: Bundles, reference: str, body: Struct) -> Shape:
    assert isinstance(body, Make)
    return await bundles.make(body)


async def _restore(bundles: Bundles, reference: str, body: Struct) -> Shape:
    assert isinstance(body, Together)
    return await bundles.restore(reference, body)


async def _members(bundles: Bundles, reference: str, body: Struct) -> Shape:
    return await bundles.members(reference)


BUNDLE_OPERATIONS = (
    BundleOperation(
        name="makeBundle",
        path="/v1/bundles",
        summary="Freeze several subjects together under one id; what runs here stands still for it",
        answer="OneCheckpoint",
        act=_make,
        body=Make,
    ),
    BundleOperation(
        name="restoreBundle",
        path=f"{ONE}/members/restore",
        summary="Bring all members of a bundle back, what runs here included; or none",
        answer="OneCheckpoint",
        act=_restore,
        body=Together,
    ),
    BundleOperation(
        name="bundleMembers",
        method="GET",
        path=f"{ONE}/members",
        summary="What a bundle binds",
        answer="Members",
        act=_members,
    ),
)
