"""Answers that belong to no single route: errors, redirects, and the headers on everything."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.model.errors import HoldfastError
from holdfast.model.tracing import request_id
from holdfast.server import pages, shapes
from holdfast.server.style import POLICY

# In a request's scope: whether it came with the token or the cookie, so that it can log out.
SIGNED_IN = "holdfast.signed_in"

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`, under which browsers send the forms of our own pages with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def wants_page(scope: Scope) -> bool:
    """Whether a person with a browser asks, rather than a program."""
    accepts = Headers(scope=scope).get("accept", "")
    return "text/html" in accepts and not scope["path"].startswith("/v1")


def failed(
    error: HoldfastError,
    scope: Scope,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error in the form that the one who asked can use."""
    code = status or error.http_status
    if wants_page(scope):
        return HTMLResponse(
            pages.failure(error, signed_in=scope.get(SIGNED_IN, False)), code, headers
        )
    told = {**shapes.error(error)["error"], "request_id": request_id.get()}
    return JSONResponse({"error": told}, code, headers)


def to_login(scope: Scope) -> Response:
    return RedirectResponse(f"/login?next={quote(scope['path'])}", 303)


class SafeHeaders:
    """ASGI middleware that puts the protective headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)  # the dashboard has a policy of its own
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Ending:
    """ASGI middleware, outside of all others, for requests that end before they are answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            pass  # it left in the middle of its request: nobody is there to be told
        except asyncio.CancelledError:
            # The server cancels what its grace was too short for. That is no fault of the request,
            # and its task ends here.
            if not started:
                told = HoldfastError("the server is stopping", hint="ask again when it is back")
                headers = {**HEADERS, "Connection": "close"}
                await failed(told, scope, 503, headers)(scope, receive, send)
