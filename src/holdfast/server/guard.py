"""Who may come in: a bearer token, or the cookie that the login sets. It is asked first,
before any route is looked up, so that a stranger learns nothing about what exists."""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.model.errors import Denied
from holdfast.sandbox.handing import is_sealed
from holdfast.server.answers import SIGNED_IN, failed, to_login, wants_page

COOKIE = "holdfast"
# A browser cannot send headers with a WebSocket, but it can offer subprotocols.
BY_BEARER = "holdfast.by_bearer"  # in a scope: the bearer is the server's token
TOKEN_PROTOCOL = "holdfast.token."
SANDBOX_PROTOCOL = "holdfast.sandbox."
OPEN = frozenset({"/status", "/login"})


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Pass:
    """What lets one in: the token itself, or a cookie derived from it (never the token)."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.cookie = hmac.new(self._token, b"holdfast login cookie", hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token)

    def is_bearer(self, headers: Headers) -> bool:
        """Whether the bearer is this token, and so none of a sandbox."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given.strip())

    def admits(self, headers: Headers) -> bool:
        if self.is_bearer(headers):
            return True
        for protocol in _listed(headers.get("sec-websocket-protocol", "")):
            if protocol.startswith(TOKEN_PROTOCOL) and self.is_token(
                protocol.removeprefix(TOKEN_PROTOCOL)
            ):
                return True
        try:
            held = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return held is not None and hmac.compare_digest(held.value.encode(), self.cookie.encode())


class Guard:
    """ASGI middleware that lets nobody past who has no pass."""

    def __init__(self, app: ASGIApp, credentials: Pass | None, *, login: bool = True) -> None:
        self._app = app
        self._pass = credentials
        self._login = login  # whether there is a page where people trade the token for a cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            headers = Headers(scope=scope)
            scope[SIGNED_IN] = self._pass is not None and self._pass.admits(headers)
            scope[BY_BEARER] = self._pass is not None and self._pass.is_bearer(headers)
        if scope["type"] == "websocket" and not same_origin(Headers(scope=scope)):
            await send({"type": "websocket.close", "code": 1008, "reason": "another origin"})
        elif scope["type"] == "lifespan" or self._may_enter(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "token needed"})
        elif self._pass is not None and self._login and wants_page(scope):
            await to_login(scope)(scope, receive, send)
        else:
            await self._refusal(scope)(scope, receive, send)

    def _may_enter(self, scope: Scope) -> bool:
        if self._pass is None:
            # Without a token, a web page elsewhere could reach us through a name that it points
            # at this machine; such a request carries that name.
            return is_loopback(host_of(Headers(scope=scope).get("host", "")))
        if scope["type"] == "http" and is_sealed(scope["path"], _authorization(scope)):
            return True  # from a server of the same store; the route looks at the seal
        return scope["path"] in OPEN or bool(scope[SIGNED_IN])

    def _refusal(self, scope: Scope) -> ASGIApp:
        if self._pass is None:
            error = Denied(
                "this server answers to loopback names only",
                hint="use 127.0.0.1 or localhost, or start it with --auth token",
            )
            return failed(error, scope)
        error = Denied(
            "the server's token is missing or wrong",
            hint="send `Authorization: Bearer <token>`; the server printed it when it started",
        )
        return failed(error, scope, status=401, headers={"WWW-Authenticate": "Bearer"})


def _authorization(scope: Scope) -> str:
    return Headers(scope=scope).get("authorization", "")


def offered(scope: Scope) -> list[str]:
    """The subprotocols that a WebSocket client offers."""
    return _listed(Headers(scope=scope).get("sec-websocket-protocol", ""))


def same_origin(headers: Headers) -> bool:
    """Whether it was a page of ours that asks, or no page at all. Browsers let any page open a
    WebSocket, with our cookie, and only say whose page it was."""
    origin = headers.get("origin")
    if origin is None:
        return True
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest.lower() == headers.get("host", "").lower()


def _listed(header: str) -> list[str]:
    return [each.strip() for each in header.split(",") if each.strip()]


def host_of(header: str) -> str:
    """The host without its port: `localhost:8787`, `[::1]:8787`."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
