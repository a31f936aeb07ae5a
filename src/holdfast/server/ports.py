"""Published ports: HTTP and WebSockets, carried to a program inside a sandbox.

What answers in there is nobody's friend. It sees none of our tokens and cookies, and what it says
gets an origin of its own in a browser, so that its scripts cannot speak to us as the one who looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

import h11
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from holdfast.model.errors import Denied, HoldfastError, NotFound
from holdfast.sandbox import keeping
from holdfast.sandbox.admission import OWNER
from holdfast.sandbox.fleet import Fleet, check_holder
from holdfast.sandbox.live import LiveSandbox
from holdfast.sandbox.switchboard import Channel
from holdfast.server import background
from holdfast.server.doors import Access, route, websocket
from holdfast.server.guard import COOKIE, SANDBOX_PROTOCOL, offered
from holdfast.server.tenants import tenant_of
from holdfast.server.webport import carry

PATH = "/v1/sandboxes/{id}/ports/{port:int}/{path:path}"
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
TOKEN_HEADER = "holdfast-sandbox-token"
# Scripts may run and forms be sent, but as somebody else, not as a page of this server.
POLICY = b"sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"

_HOP = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te"),
    *(b"trailer", b"transfer-encoding", b"upgrade"),
}
_OURS = {b"authorization", b"host", TOKEN_HEADER.encode(), b"content-length", b"cookie"}
# What would speak for this server as a whole.
_NOT_THEIRS = {
    *(b"clear-site-data", b"service-worker-allowed", b"strict-transport-security", b"alt-svc"),
    *(b"access-control-allow-credentials", b"set-cookie", b"content-length"),
}

Headers = list[tuple[bytes, bytes]]


class Ports:
    """The way to the published ports of a fleet."""

    def __init__(self, fleet: Fleet | None) -> None:
        self._fleet = fleet

    def routes(self) -> list[Route | WebSocketRoute]:
        access, subject = Access.PORT, "published ports of one sandbox that runs on this server"
        return [
            route(PATH, self.http, access=access, subject=subject, methods=METHODS),
            websocket(PATH, self.socket, access=access, subject=subject),
        ]

    def _sandbox(self, request: Request | WebSocket) -> LiveSandbox:
        """Raises NotFound, or Denied for a tenant without the sandbox's token."""
        identity = request.path_params["id"]
        found = self._fleet.live.get(identity) if self._fleet is not None else None
        if found is None:
            raise NotFound(f"no sandbox {identity[:50]!r} runs here")
        if tenant_of(request.scope) is not OWNER and not keeping.fits(_token(request), found.token):
            raise Denied("the sandbox token is missing or wrong", hint=f"send {TOKEN_HEADER}")
        check_holder(found.holder, tenant_of(request.scope))
        return found

    async def http(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        channel = await sandbox.connect(request.path_params["port"])
        try:
            link = h11.Connection(h11.CLIENT)
            # It may answer before it has read everything.
            sending = background.begin(
                "passing a request on",
                lambda: _send(request, link, channel, sandbox),
                channel.close,
            )
            head = await _head(link, channel)
        except (OSError, h11.ProtocolError) as error:
            await channel.close()
            raise HoldfastError(f"what answers in the sandbox speaks no HTTP: {error}") from None
        except BaseException:
            await channel.close()
            raise
        answer = StreamingResponse(_body(link, channel, sandbox, sending), head.status_code)
        answer.raw_headers = _theirs(head.headers, request)
        return answer

    async def socket(self, socket: WebSocket) -> None:
        try:
            sandbox = self._sandbox(socket)
            channel = await sandbox.connect(socket.path_params["port"])
        except HoldfastError:
            await socket.close(1008)  # before accepting: a 403
            return
        wanted = [each for each in offered(socket.scope) if not each.startswith("holdfast.")]
        headers = _given(socket.headers.raw)
        kept = [each for each in headers if not each[0].startswith(b"sec-websocket-")]
        try:
            with suppress(WebSocketDisconnect, OSError):
                await carry(socket, channel, _target(socket), kept, wanted, sandbox.touch)
        finally:
            await channel.close()


def _token(request: Request | WebSocket) -> str:
    given = request.headers.get(TOKEN_HEADER) or request.query_params.get("sandbox_token", "")
    for protocol in offered(request.scope):
        if protocol.startswith(SANDBOX_PROTOCOL):
            given = given or protocol.removeprefix(SANDBOX_PROTOCOL)
    return given


def _target(request: Request | WebSocket) -> str:
    """The path and the query as they are inside, without our token."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    text = raw.decode("ascii", "replace").partition("?")[0]
    path = text.split("/ports/", 1)[1].partition("/")[2]
    query = request.scope.get("query_string", b"").decode("ascii", "replace")
    kept = [each for each in query.split("&") if each and not each.startswith("sandbox_token=")]
    return f"/{path}" + (f"?{'&'.join(kept)}" if kept else "")


def _given(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """A client's headers, as a program inside may see them."""
    kept = [(name, value) for name, value in raw if name not in _HOP and name not in _OURS]
    cookies = [
        each.strip()
        for name, value in raw
        if name == b"cookie"
        for each in value.split(b";")
        if each.strip() and not each.strip().startswith(f"{COOKIE}=".encode())
    ]
    return [*kept, *([(b"cookie", b"; ".join(cookies))] if cookies else [])]


def _theirs(headers: Iterable[tuple[bytes, bytes]], request: Request) -> Headers:
    """A program's headers, as a client may see them."""
    told: Headers = []
    place = f"/v1/sandboxes/{request.path_params['id']}/ports/{request.path_params['port']}/"
    for name, value in headers:
        if name == b"set-cookie":
            fields = [each.strip() for each in value.split(b";")]
            if fields[0].startswith(f"{COOKIE}=".encode()):
                continue
            kept = [each for each in fields if not each.lower().startswith((b"path=", b"domain="))]
            told.append((name, b"; ".join([*kept, f"Path={place}".encode()])))
        elif name == b"content-length" or (name not in _HOP and name not in _NOT_THEIRS):
            told.append((name, value))
    return [*told, (b"content-security-policy", POLICY)]


async def _send(
    request: Request, link: h11.Connection, channel: Channel, sandbox: LiveSandbox
) -> None:
    port = request.path_params["port"]
    length = request.headers.get("content-length")
    framing: Headers = []
    if length is not None:
        framing = [(b"content-length", length.encode())]
    elif "transfer-encoding" in request.headers:
        framing = [(b"transfer-encoding", b"chunked")]
    headers = [
        (b"host", f"localhost:{port}".encode()),
        *_given(request.headers.raw),
        *framing,
        (b"connection", b"close"),
    ]
    first = h11.Request(method=request.method, target=_target(request), headers=headers)
    try:
        await channel.write(link.send(first) or b"")
        async for block in request.stream():
            sandbox.touch()
            await channel.write(link.send(h11.Data(data=block)) or b"")
        await channel.write(link.send(h11.EndOfMessage()) or b"")
        await request.receive()  # nothing more comes, but that the client leaves
    except (OSError, h11.LocalProtocolError, ClientDisconnect):
        pass
    await channel.close()  # whoever waits for the answer hears it


async def _head(link: h11.Connection, channel: Channel) -> h11.Response:
    while True:
        event = link.next_event()
        if event is h11.NEED_DATA:
            link.receive_data(await channel.read())
        elif isinstance(event, h11.Response):
            return event
        elif not isinstance(event, h11.InformationalResponse):
            raise h11.RemoteProtocolError("it hung up")


async def _body(
    link: h11.Connection, channel: Channel, sandbox: LiveSandbox, sending: asyncio.Task[None]
) -> AsyncIterator[bytes]:
    try:
        while True:
            event = link.next_event()
            if event is h11.NEED_DATA:
                link.receive_data(await channel.read())
            elif isinstance(event, h11.Data):
                sandbox.touch()
                yield bytes(event.data)
            else:
                return
    finally:
        sending.cancel()
        await asyncio.shield(channel.close())
