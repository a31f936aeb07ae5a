"""The ways to a session that runs here: JSON to start, freeze and end it, a WebSocket to type."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from holdfast.model.errors import Corrupt, NotFound
from holdfast.server import shapes
from holdfast.server.doors import Access, route, websocket
from holdfast.server.operations import Nothing, Text, read_body
from holdfast.server.sandbox_verbs import Reason
from holdfast.server.sandboxes import accept
from holdfast.server.sessions import Console, Sessions, check_reference
from holdfast.server.verbs import Rollback

WAITING = 2000  # messages that a client may leave unread
_SUBJECT = "sessions that this server runs, as its user"
NO_SESSION, TOO_SLOW, BAD_MESSAGE = 4004, 1013, 1003


class Start(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of a session; without one, it gets one."""

    name: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    trust: bool = False


class Back(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The checkpoint whose content a session gets."""

    to: Text
    trust: bool = False


class Consoles:
    """Routes on the sessions of a server."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def routes(self) -> list[BaseRoute]:
        one = "/v1/sessions/{name:path}"
        ways = (
            ("GET", "/v1/sessions", self.listed),
            ("POST", "/v1/sessions", self.start),
            ("POST", f"{one}/checkpoint", self.checkpoint),
            ("POST", f"{one}/rollback", self.rollback),
            ("POST", f"{one}/restore", self.restore),
            ("POST", f"{one}/interrupt", self.interrupt),
            ("DELETE", one, self.stop),
        )
        return [
            websocket(f"{one}/console", self.console, access=Access.OWNER, subject=_SUBJECT),
            *(
                route(path, act, access=Access.OWNER, subject=_SUBJECT, methods=[method])
                for method, path, act in ways
            ),
        ]

    async def listed(self, request: Request) -> Response:
        hosted = self._sessions
        return JSONResponse(
            {
                "sessions": hosted.running(),
                "why_not": hosted.why_not,
                "idle_timeout": hosted.idle_seconds,
            }
        )

    async def start(self, request: Request) -> Response:
        asked = await read_body(request, Start)
        assert isinstance(asked, Start)
        name = None if asked.name is None else asked.name.removeprefix("session/")
        console = await self._sessions.start(name, trust=asked.trust)
        session = console.session
        report = [shapes.item(each) for each in session.report or ()]
        return JSONResponse(
            {"name": session.name, "subject": str(session.subject), "report": report}
        )

    async def checkpoint(self, request: Request) -> Response:
        asked = await read_body(request, Reason)
        assert isinstance(asked, Reason)
        session = self._found(request).session
        made = await session.checkpoint(asked.reason)
        found = await asyncio.to_thread(session.store.resolve, made.id)
        told = {"checkpoint": shapes.checkpoint(found), "pause_ms": round(made.pause_ms, 1)}
        return JSONResponse(told)

    async def rollback(self, request: Request) -> Response:
        asked = await read_body(request, Rollback)
        assert isinstance(asked, Rollback)
        session = self._found(request).session
        report = await session.rollback(asked.to, trust=asked.trust)
        return JSONResponse({"report": [shapes.item(each) for each in report]})

    async def restore(self, request: Request) -> Response:
        asked = await read_body(request, Back)
        assert isinstance(asked, Back)
        check_reference(asked.to)
        session = self._found(request).session
        report = await session.restore(asked.to, trust=asked.trust)
        return JSONResponse({"report": [shapes.item(each) for each in report]})

    async def interrupt(self, request: Request) -> Response:
        await read_body(request, Nothing)
        done = await self._found(request).session.interrupt()
        return JSONResponse({"interrupted": done})

    async def stop(self, request: Request) -> Response:
        name = request.path_params["name"]
        await self._sessions.stop(name)
        return JSONResponse({"id": name})

    def _found(self, request: Request) -> Console:
        return self._sessions.find(request.path_params["name"])

    async def console(self, socket: WebSocket) -> None:
        """One client of a console, until it leaves or breaks the protocol."""
        await accept(socket)
        try:
            console = self._sessions.find(socket.path_params["name"])
        except NotFound as error:
            await socket.close(NO_SESSION, str(error)[:100])
            return
        unread: asyncio.Queue[str | None] = asyncio.Queue()
        leave = console.listen(unread.put_nowait)
        sending = asyncio.create_task(_send(socket, console, unread))
        try:
            await _receive(socket, console)
        finally:
            leave()
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending


async def _send(socket: WebSocket, console: Console, unread: asyncio.Queue[str | None]) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it has left
        while True:
            text = await unread.get()
            if text is None:
                await socket.close(NO_SESSION, console.farewell[:100])
                return
            if unread.qsize() > WAITING:
                await socket.close(TOO_SLOW, "too slow")
                return
            await socket.send_text(text)


async def _receive(socket: WebSocket, console: Console) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        try:
            console.take(message.get("text") or "")
        except Corrupt as error:
            with contextlib.suppress(RuntimeError):
                await socket.close(BAD_MESSAGE, str(error)[:100])
            return
