"""The verbs on live sandboxes over HTTP, for whoever looks after the server: one table, from which
the routes and the OpenAPI description both come."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.model.errors import Conflict, NotFound, Unsupported
from holdfast.protocol.sandbox_messages import FilesRequest
from holdfast.protocol.sandbox_requests import MAX_FRAME
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.live import LiveSandbox
from holdfast.server import doors, shapes
from holdfast.server.files import do_to_files
from holdfast.server.operations import MAX_BODY, Nothing, Text, read_body

ONE = "/v1/sandboxes/{id}"
Shape = dict[str, object]
_ANSWERED = ("verb", "path", "data", "entries", "size", "modified")
Act = Callable[[Fleet, LiveSandbox, Struct], Awaitable[Shape]]


class Reason(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a checkpoint is taken."""

    reason: Text = "manual"


class Copies(Struct, frozen=True, forbid_unknown_fields=True):
    """How many live copies are made."""

    count: Annotated[int, Meta(ge=1, le=100)] = 1


class Back(Struct, frozen=True, forbid_unknown_fields=True):
    """Which checkpoint to go back to; without one, the head's parent."""

    to: Text | None = None


class Snapshot(Struct, frozen=True, forbid_unknown_fields=True):
    """The name to keep files under."""

    name: Text


class TemplateName(Struct, frozen=True, forbid_unknown_fields=True):
    """The name to keep a sandbox under, as it runs."""

    name: Text


class FileWork(Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do to a sandbox's files, as its user."""

    verb: Literal["read", "write", "list", "remove", "mkdir", "rename"]
    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    data: str | None = None
    encoding: Literal["text", "base64"] = "text"
    offset: Annotated[int, Meta(ge=0)] | None = None
    size: Annotated[int, Meta(ge=0)] | None = None
    to: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    path_encoding: Literal["text", "base64"] = "text"


def described(sandbox: LiveSandbox, engine: str) -> Shape:
    return {
        "id": sandbox.identity,
        "name": sandbox.request.name,
        "engine": engine,
        "attached": sandbox.client is not None,
        "executing": sandbox.executing,
        "checkpoints": sandbox.request.enable_checkpoint,
        "idle_seconds": round(time.monotonic() - sandbox.touched, 1),
        "idle_timeout": sandbox.request.idle_timeout,
    }


async def _show(fleet: Fleet, sandbox: LiveSandbox, body: Struct) -> Shape:
    return described(sandbox, fleet.engine.name)


async def _checkpoint(fleet: Fleet, sandbox: LiveSandbox, body: Struct) -> Shape:
    assert isinstance(body, Reason)
    _check_enabled(sandbox)
    captured = await fleet.freezer.checkpoint(
        sandbox,
        reason=body.reason,
        during_execution=fleet.engine.capabilities.during_execution,
    )
    made = shapes.checkpoint(captured.checkpoint)
    return {"checkpoint": made, "pause_ms": round(captured.pause_ms, 1)}


async def _kill(fleet: Fleet, sandbox: LiveSandbox, body: Struct) -> Shape:
    await fleet.exits.kill_for(sandbox)
    return {"id": sandbox.identity}


async def _fork(fleet: Fleet, sandbox: LiveSandbox, body: Struct) -> Shape:
    assert isinstance(body, Copies)
    _check_enabled(sandbox)
    copies = await fleet.fork(sandbox, body.count)
    return {"sandboxes": [{"id": copy.identity, "token": token} for copy, token in copies]}


async def _rollback(fleet: Fleet, sandbox: LiveSandbox, body: Struct) -> Shape:
    assert isinstance(body, Back)
    _check_enabled(sandbox)
    if sandbox.client is not None:
        raise Conflict("a client is attached to the sandbox", hint="it can roll back itself")
    return {"checkpoint": shapes.checkpoint(await fleet.rollback(sandbox, body.to))}


async def _snapshot(fleet: Fleet, sandbox: LiveSandbox, body: Struct) -> Shape:
    assert isinstance(body, Snapshot)
    made = await fleet.freezer.snapshot(sandbox, body.name)
    return {"checkpoint": shapes.checkpoint(made)}


async def _template(fleet: Fleet, sandbox: LiveSandbox, body: Struct) -> Shape:
    assert isinstance(body, TemplateName)
    made = await fleet.templates.save(sandbox, body.name)
    return {"checkpoint": shapes.checkpoint(made)}


async def _files(fleet: Fleet, sandbox: LiveSandbox, body: Struct) -> Shape:
    assert isinstance(body, FileWork)
    asked = FilesRequest(action="files", **msgspec.structs.asdict(body))
    sandbox.touch()
    told: Shape = msgspec.to_builtins(await do_to_files(sandbox.files, asked))
    return {name: told.get(name) for name in _ANSWERED} | {"encoding": body.encoding}


def _check_enabled(sandbox: LiveSandbox) -> None:
    if not sandbox.request.enable_checkpoint:
        raise Unsupported("checkpoints are not enabled for this sandbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOperation:
    """One verb on one live sandbox."""

    name: str
    summary: str
    answer: str  # a schema of openapi.py
    act: Act
    method: str = "POST"
    path: str = ONE
    body: type[Struct] | None = None
    query: tuple[str, ...] = ()
    most: int = MAX_BODY

    def route(self, fleet: Fleet | None) -> Route:
        async def endpoint(request: Request) -> Response:
            body = await read_body(request, self.body, self.most) if self.body else Nothing()
            identity = request.path_params["id"]
            sandbox = fleet.live.get(identity) if fleet is not None else None
            if fleet is None or sandbox is None:
                raise NotFound(f"no sandbox {identity[:50]!r} runs here")
            return JSONResponse(await self.act(fleet, sandbox, body))

        return doors.route(
            self.path,
            endpoint,
            access=doors.Access.OWNER,
            subject="sandboxes that run on this server",
            methods=[self.method],
            name=self.name,
        )


SANDBOX_OPERATIONS = (
    SandboxOperation(
        name="showSandbox",
        method="GET",
        summary="One sandbox that runs here",
        answer="Sandbox",
        act=_show,
    ),
    SandboxOperation(
        name="checkpointSandbox",
        path=f"{ONE}/checkpoint",
        summary="Freeze a sandbox that goes on",
        answer="SandboxCheckpoint",
        act=_checkpoint,
        body=Reason,
    ),
    SandboxOperation(
        name="forkSandbox",
        path=f"{ONE}/fork",
        summary="Make live copies, each with an id and a token of its own",
        answer="SandboxPasses",
        act=_fork,
        body=Copies,
    ),
    SandboxOperation(
        name="rollbackSandbox",
        path=f"{ONE}/rollback",
        summary="Go back to an earlier checkpoint of a sandbox that nobody is attached to",
        answer="OneCheckpoint",
        act=_rollback,
        body=Back,
    ),
    SandboxOperation(
        name="snapshotSandbox",
        path=f"{ONE}/snapshot",
        summary="Keep the files of a sandbox under a name",
        answer="OneCheckpoint",
        act=_snapshot,
        body=Snapshot,
    ),
    SandboxOperation(
        name="templateSandbox",
        path=f"{ONE}/template",
        summary="Keep a sandbox at rest, with what stays behind in it, as a template",
        answer="OneCheckpoint",
        act=_template,
        body=TemplateName,
    ),
    SandboxOperation(
        name="sandboxFiles",
        path=f"{ONE}/files",
        summary="Read, write, list or remove files as the sandbox's user",
        answer="Files",
        act=_files,
        body=FileWork,
        most=MAX_FRAME,
    ),
    SandboxOperation(
        name="killSandbox",
        method="DELETE",
        summary="End a sandbox for good",
        answer="Gone",
        act=_kill,
    ),
)
