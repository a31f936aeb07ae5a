"""Who may come in: a bearer token, or the cookie that the login sets. It is asked first,
before any route is looked up, so that a stranger learns nothing about what exists."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.model.errors import Denied
from holdfast.sandbox.admission import OWNER, Tenant
from holdfast.sandbox.handing import is_sealed
from holdfast.server.answers import SIGNED_IN, failed, to_login, wants_page
from holdfast.server.tenants import TENANT, digest, may_enter

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
    """What lets one in: the token itself, or a cookie derived from it (never the token); and the
    tokens of tenants, by their digest."""

    def __init__(self, token: str, tenants: Mapping[str, Tenant] | None = None) -> None:
        self._token = token.encode()
        self._tenants = dict(tenants or {})
        self.cookie = hmac.new(self._token, b"holdfast login cookie", hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token)

    def is_bearer(self, headers: Headers) -> bool:
        """Whether the bearer is a token of ours, and so none of a sandbox."""
        return any(self._holder(given) is not None for given in _bearers(headers))

    def admits(self, headers: Headers) -> Tenant | None:
        """Who it is that comes with these headers, if it is anybody."""
        for given in (*_bearers(headers), *_protocols(headers)):
            if (who := self._holder(given)) is not None:
                return who
        try:
            held = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return None
        known = held is not None and hmac.compare_digest(held.value.encode(), self.cookie.encode())
        return OWNER if known else None

    def _holder(self, given: str) -> Tenant | None:
        return OWNER if self.is_token(given) else self._tenants.get(digest(given))


def _bearers(headers: Headers) -> list[str]:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return [given.strip()] if scheme.lower() == "bearer" else []


def _protocols(headers: Headers) -> list[str]:
    offered = _listed(headers.get("sec-websocket-protocol", ""))
    return [
        each.removeprefix(TOKEN_PROTOCOL) for each in offered if each.startswith(TOKEN_PROTOCOL)
    ]


class Guard:
    """ASGI middleware that lets nobody past who has no pass."""

    def __init__(self, app: ASGIApp, credentials: Pass | None, *, login: bool = True) -> None:
        self._app = app
        self._pass = credentials
        self._login = login  # whether there is a page where people trade the token for a cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            headers = Headers(scope=scope)
            who = self._pass.admits(headers) if self._pass is not None else None
            scope[SIGNED_IN] = who is OWNER
            scope[TENANT] = who
            scope[BY_BEARER] = self._pass is not None and self._pass.is_bearer(headers)
        if scope["type"] == "websocket" and not same_origin(Headers(scope=scope)):
            await send({"type": "websocket.close", "code": 1008, "reason": "another origin"})
        elif scope["type"] == "lifespan" or self._may_enter(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "token needed"})
        elif self._login and self._wants_login(scope):
            await to_login(scope)(scope, receive, send)
        else:
            await self._refusal(scope)(scope, receive, send)

    def _wants_login(self, scope: Scope) -> bool:
        return self._pass is not None and scope[TENANT] is None and wants_page(scope)

    def _may_enter(self, scope: Scope) -> bool:
        if self._pass is None:
            # Without a token, a web page elsewhere could reach us through a name that it points
            # at this machine; such a request carries that name.
            return is_loopback(host_of(Headers(scope=scope).get("host", "")))
        if scope["type"] == "http" and is_sealed(scope["path"], _authorization(scope)):
            return True  # from a server of the same store; the route looks at the seal
        if scope["path"] in OPEN or scope[SIGNED_IN]:
            return True
        return scope[TENANT] is not None and may_enter(scope["path"])

    def _refusal(self, scope: Scope) -> ASGIApp:
        if self._pass is None:
            error = Denied(
                "this server answers to loopback names only",
                hint="use 127.0.0.1 or localhost, or start it with --auth token",
            )
            return failed(error, scope)
        if scope[TENANT] is not None:
            error = Denied("this token leads to sandboxes only", hint="use the server's own token")
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
