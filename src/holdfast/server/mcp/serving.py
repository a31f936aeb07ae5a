"""The two ways to reach the tools: this process's stdin and stdout, or HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from anyio import wrap_file
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast import __version__
from holdfast.model.errors import Denied
from holdfast.server.answers import failed
from holdfast.server.doors import Access, route
from holdfast.server.guard import Guard, Pass, host_of, is_loopback, same_origin
from holdfast.server.listen import serve
from holdfast.server.logs import Requests

if TYPE_CHECKING:
    from mcp.server import Server
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
MOST_LINE = 64 << 20  # bytes of one message


async def over_stdio(server: Server[None]) -> None:
    """Serve one client until it closes stdin, or SIGTERM or SIGINT comes."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with _wire() as (incoming, outgoing):
        # The SDK would read in a thread, which no signal gets out of its read.
        stdin: Any = _Lines(incoming)
        try:
            async with stdio_server(stdin, wrap_file(outgoing)) as (reading, writing):
                await server.run(reading, writing, server.create_initialization_options())
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


@contextlib.contextmanager
def _wire() -> Iterator[tuple[int, IO[str]]]:
    """Our stdin and stdout, for nobody but the protocol: what else is printed goes to stderr."""
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    with open(outgoing, "w", encoding="utf-8", newline="\n") as stdout:
        try:
            yield incoming, stdout
        finally:
            os.dup2(outgoing, 1)


class _Lines:
    """The lines of a descriptor, as they come."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def __aiter__(self) -> AsyncIterator[str]:
        reader = asyncio.StreamReader(limit=MOST_LINE)
        loop = asyncio.get_running_loop()
        with open(self._descriptor, "rb") as file:
            if not _can_be_waited_for(self._descriptor):
                for line in file:
                    yield line.decode("utf-8", "replace")
                return
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
            while line := await reader.readline():
                yield line.decode("utf-8", "replace")


def _can_be_waited_for(descriptor: int) -> bool:
    """Whether there may be more later: a file and /dev/null give at once what they have."""
    with select.epoll() as waiting:
        try:
            waiting.register(descriptor)
        except PermissionError:
            return False
    return True


def over_http(
    server: Server[None], listener: socket.socket, token: str | None, ready: Callable[[], None]
) -> None:
    """Serve any number of clients until SIGTERM or SIGINT."""
    serve(application(server, listener, token), listener, ready)


def application(server: Server[None], listener: socket.socket, token: str | None) -> ASGIApp:
    """The protocol at /mcp, behind the token; nobody's web page gets in."""
    status = route("/status", _status, access=Access.ANYONE, subject="whether it lives")
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        custom_starlette_routes=[status],
    )
    credentials = None if token is None else Pass(token)
    near = is_loopback(listener.getsockname()[0])
    return Requests(Guard(Door(app, near=near), credentials, routes=[status], login=False))


class Door:
    """ASGI middleware against web pages: a browser says whose page asks, and under which name it
    believes to have found us. The SDK's own check knows no address that stands for all."""

    def __init__(self, app: ASGIApp, *, near: bool) -> None:
        self._app = app
        self._near = near

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if self._near and not is_loopback(host_of(headers.get("host", ""))):
                hint = "use 127.0.0.1 or localhost"
                error = Denied("this server answers to loopback names only", hint=hint)
                app = failed(error, scope, 421)
            elif not same_origin(headers):
                app = failed(Denied("a page of another origin asks"), scope, 403)
        await app(scope, receive, send)


async def _status(request: Request) -> Response:
    return JSONResponse({"status": "ok", "version": __version__})
