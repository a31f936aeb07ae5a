"""The ways to a sandbox: WebSockets to create one and to attach to one, and POST /execute."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket

from holdfast.model.errors import (
    BadInput,
    Busy,
    Conflict,
    Denied,
    HoldfastError,
    NotFound,
    Owned,
    Unsupported,
)
from holdfast.protocol.sandbox_flow import Fact, encode
from holdfast.protocol.sandbox_messages import CreateRequest, ExecuteRequest, SandboxIdEvent
from holdfast.protocol.sandbox_requests import LANGUAGES, MAX_FRAME, parse_create
from holdfast.sandbox import owning
from holdfast.sandbox.admission import Tenant
from holdfast.sandbox.execution import Execution
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.keeping import Kept
from holdfast.sandbox.live import LiveSandbox
from holdfast.server.attachment import Attachment
from holdfast.server.doors import Access, route, websocket
from holdfast.server.guard import BY_BEARER, SANDBOX_PROTOCOL, offered
from holdfast.server.operations import whole_body
from holdfast.server.sandbox_verbs import described
from holdfast.server.tenants import tenant_of

log = logging.getLogger("holdfast.server")
PROTOCOL = "holdfast.v1"
FIRST_FRAME_SECONDS = 30.0


class Sandboxes:
    """Routes that lead to a fleet; without one, they say why there is none."""

    def __init__(self, fleet: Fleet | None, why_not: HoldfastError | None = None) -> None:
        self.fleet = fleet
        self.why_not = why_not or Unsupported("this server has no engine for sandboxes")

    def routes(self) -> list[BaseRoute]:
        return [
            route(
                "/v1/sandboxes",
                self.listed,
                access=Access.OWNER,
                subject="sandboxes that run on this server",
            ),
            route(
                "/execute",
                self.execute,
                access=Access.TENANT,
                subject="a sandbox that it makes",
                methods=["POST"],
            ),
            websocket(
                "/create", self.create, access=Access.TENANT, subject="a sandbox that it makes"
            ),
            websocket(
                "/attach/{id}",
                self.attach,
                access=Access.SANDBOX,
                subject="that sandbox, wherever it runs or is kept",
            ),
        ]

    async def create(self, socket: WebSocket) -> None:
        await accept(socket)
        client = Attachment(socket, self._any_fleet())
        async with served(client):
            frame = await first_frame(socket)
            if frame is None:
                return
            await client.tell(Fact.CREATE_BEGUN)
            try:
                if self.fleet is None:
                    raise self.why_not
                asked = parse_create(frame, self.fleet.settings.idle_timeout)
                sandbox, token = await self.fleet.create(
                    asked, client.tell, tenant_of(socket.scope), client.hold
                )
            except HoldfastError as error:
                await client.tell(Fact.CREATE_FAILED, str(error), error=error)
                return
            identity = SandboxIdEvent(
                event="sandbox_id", sandbox_id=sandbox.identity, sandbox_token=token
            )
            await client.tell(Fact.CREATED, identity=identity)
            if client.gone:  # nobody has its token, or ever will
                await self.fleet.exits.kill(sandbox, owning.silence)
            await client.serve()

    async def attach(self, socket: WebSocket) -> None:
        token = sandbox_token(socket)
        if token is None:
            await socket.close(1008, "sandbox token needed")  # before accepting: a 403
            return
        await accept(socket)
        client = Attachment(socket, self._any_fleet())
        async with served(client):
            if await self._open(client, socket, token):
                await client.serve()

    async def _open(self, client: Attachment, socket: WebSocket, token: str) -> bool:
        """Go back to a sandbox; whether that was possible."""
        identity, tenant = socket.path_params["id"], tenant_of(socket.scope)
        if self.fleet is None:
            await client.tell(Fact.NOT_FOUND, str(self.why_not))
            return False
        found: LiveSandbox | Kept
        try:
            found = await self.fleet.find(identity, token, tenant)
        except NotFound:
            await client.tell(Fact.NOT_FOUND)
            return False
        except Denied as error:
            await client.tell(Fact.DENIED, error=error)
            return False
        except Busy as error:
            await client.tell(Fact.RESTORE_FAILED, str(error), error=error)
            return False
        except Conflict:
            await client.tell(Fact.IN_USE)
            return False
        except HoldfastError as error:
            await client.tell(Fact.RESTORE_FAILED, str(error), error=error)
            return False
        if isinstance(found, LiveSandbox):
            client.hold(found)
            await client.tell(Fact.ATTACHED)
            client.executions.expect_reconnect(found)
            return True
        return await self._restore(self.fleet, client, identity, found, tenant)

    async def _restore(
        self, fleet: Fleet, client: Attachment, identity: str, kept: Kept, tenant: Tenant
    ) -> bool:
        try:
            fleet.check(
                kept, tenant
            )  # before RESTORING is said: some clients hang on an error after it
            await client.tell(Fact.RESTORE_BEGUN)
            sandbox = await fleet.restore(identity, kept, client.tell, tenant, client.hold)
        except Owned:
            await client.tell(Fact.IN_USE)  # another server was faster
            return False
        except HoldfastError as error:
            await client.tell(Fact.RESTORE_FAILED, str(error), error=error)
            return False
        await client.tell(Fact.RESTORED)
        await client.executions.catch_up(sandbox)
        return True

    def _any_fleet(self) -> Fleet:
        # A client without a fleet never comes so far as to use it.
        return self.fleet  # type: ignore[return-value]

    # -- over HTTP, for whoever looks after the server

    async def listed(self, request: Request) -> Response:
        found: list[dict[str, object]] = []
        if self.fleet is not None:
            name = self.fleet.engine.name
            found = [described(each, name) for each in self.fleet.live.values()]
        return JSONResponse({"sandboxes": found})

    def running(self) -> list[dict[str, object]]:
        """The same without what changes all the time, for those who watch."""
        if self.fleet is None:
            return []
        name = self.fleet.engine.name
        found = (described(each, name) for each in self.fleet.live.values())
        return [{key: each[key] for key in each if key != "idle_seconds"} for each in found]

    # -- one execution over HTTP

    async def execute(self, request: Request) -> Response:
        language = request.query_params.get("language", "python")
        if language not in LANGUAGES:
            raise BadInput(
                f"unsupported language: {language[:100]!r}", hint=f"one of {', '.join(LANGUAGES)}"
            )
        code = await body_text(request)
        if self.fleet is None:
            raise self.why_not
        fleet = self.fleet
        wanted = CreateRequest(idle_timeout=fleet.settings.idle_timeout)
        sandbox, _ = await fleet.create(wanted, tenant=tenant_of(request.scope))
        sandbox.unattended = True
        try:
            asked = ExecuteRequest(language=language, code=code, stdin=False)
            execution = await sandbox.execute(asked)
        except BaseException:
            await fleet.exits.kill(sandbox, owning.silence)
            raise
        as_events = "application/x-ndjson" in request.headers.get("accept", "")
        stream = lines(execution) if as_events else text(execution)
        return StreamingResponse(
            ending(stream, fleet, sandbox),
            media_type="application/x-ndjson" if as_events else "text/plain; charset=utf-8",
        )


@contextlib.asynccontextmanager
async def served(client: Attachment) -> AsyncIterator[None]:
    """For as long as a client is served. A fault of ours is told, too: clients that hear of none
    come back at once, again and again."""
    try:
        yield
    except Exception:
        log.exception("a client could not be served")
        told = HoldfastError("the server failed", hint="its log says why")
        await client.tell(Fact.FAULT, error=told)
    finally:
        client.let_go()


async def accept(socket: WebSocket) -> None:
    """Accept with our subprotocol where it was offered, and with none otherwise."""
    chosen = PROTOCOL if PROTOCOL in socket.scope.get("subprotocols", ()) else None
    await socket.accept(subprotocol=chosen)


async def first_frame(socket: WebSocket) -> str | bytes | None:
    """What the sandbox is to be like; None when the client went away or said nothing."""
    try:
        async with asyncio.timeout(FIRST_FRAME_SECONDS):
            message = await socket.receive()
    except TimeoutError:
        with contextlib.suppress(RuntimeError):
            await socket.close(1008, "no first frame")
        return None
    if message["type"] == "websocket.disconnect":
        return None
    text = message.get("text")
    return text if isinstance(text, str) else bytes(message.get("bytes") or b"")


def sandbox_token(socket: WebSocket) -> str | None:
    """The token of a sandbox: in the query, a subprotocol, or as the bearer, unless that is the
    server's."""
    given = socket.query_params.get("sandbox_token")
    if given:
        return given
    for protocol in offered(socket.scope):
        if protocol.startswith(SANDBOX_PROTOCOL):
            return protocol.removeprefix(SANDBOX_PROTOCOL)
    if socket.scope[BY_BEARER]:
        return None
    scheme, _, bearer = socket.headers.get("authorization", "").partition(" ")
    return bearer.strip() if scheme.lower() == "bearer" and bearer.strip() else None


async def body_text(request: Request) -> str:
    try:
        return (await whole_body(request, MAX_FRAME)).decode()
    except UnicodeDecodeError:
        raise BadInput("the code is not UTF-8") from None


async def text(execution: Execution) -> AsyncIterator[bytes]:
    async for event in output(execution):
        yield event[0]


async def lines(execution: Execution) -> AsyncIterator[bytes]:
    async for _, line in output(execution):
        yield line
    yield encode(execution.exit_event()) + b"\n"


async def output(execution: Execution) -> AsyncIterator[tuple[bytes, bytes]]:
    """Output as it comes: the bytes themselves, and the event that tells them."""
    process = execution.process
    process.follower = True
    while True:
        ended = process.exit is not None
        for piece in execution.pieces():
            yield piece.data, encode(execution.event(piece)) + b"\n"
            execution.sent = piece.offset
        process.consumed()
        if ended:
            return
        if execution.sent >= process.replay.end and process.exit is None:
            await process.changed()


async def ending(
    stream: AsyncIterator[bytes], fleet: Fleet, sandbox: LiveSandbox
) -> AsyncIterator[bytes]:
    """The stream, and the end of its sandbox, whether it was read to the end or not."""
    try:
        async for block in stream:
            sandbox.touch()
            yield block
    finally:
        await asyncio.shield(fleet.exits.kill(sandbox, owning.silence))
