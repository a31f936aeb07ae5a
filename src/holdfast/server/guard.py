"""The guard: asks for a token or the login's cookie before any route is used, so that a stranger
learns nothing about what exists. `doors` says who may use which route.

Any web page can make a browser send requests here: with the login's cookie, or to a server on
loopback that asks for no token. The browser then says in `Origin` and `Sec-Fetch-Site` whose page
it was. So a request that may change something must come from a page of this server, or from a
program, which sends neither. The `Content-Type` of a body is not checked: it tells pages from
programs less well, and `curl -d` sends the one that pages do.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.model.errors import Denied
from holdfast.sandbox.admission import OWNER, Tenant
from holdfast.sandbox.handing import is_sealed
from holdfast.server.answers import SIGNED_IN, failed, to_login, wants_page
from holdfast.server.doors import SAFE, Access, Accesses
from holdfast.server.tenants import TENANT, digest

COOKIE = "holdfast"
COOKIE_SECONDS = 7 * 24 * 3600  # after which one logs in anew
# A browser cannot send headers with a WebSocket, but it can offer subprotocols.
BY_BEARER = "holdfast.by_bearer"  # in a scope: the bearer is the server's token
TOKEN_PROTOCOL = "holdfast.token."
SANDBOX_PROTOCOL = "holdfast.sandbox."


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

    def cookie(self, now: float | None = None) -> str:
        """What a browser gets for the token: a proof that it had it, which ends by itself."""
        return self._cookie(int((time.time() if now is None else now) + COOKIE_SECONDS))

    def _cookie(self, until: int) -> str:
        told = f"holdfast login cookie until {until}".encode()
        return f"{until}.{hmac.new(self._token, told, hashlib.sha256).hexdigest()}"

    def _is_cookie(self, given: str) -> bool:
        until, dot, _ = given.partition(".")
        if not dot or len(until) > 12 or not (until.isascii() and until.isdecimal()):
            return False
        known = hmac.compare_digest(
            given.encode("utf-8", "surrogatepass"), self._cookie(int(until)).encode()
        )
        return known and time.time() < int(until)

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
        return OWNER if held is not None and self._is_cookie(held.value) else None

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

    def __init__(
        self,
        app: ASGIApp,
        credentials: Pass | None,
        *,
        routes: Sequence[BaseRoute],
        login: bool = True,
        public: str | None = None,
    ) -> None:
        self._app = app
        self._pass = credentials
        self._accesses = Accesses(routes)
        self._login = login  # whether there is a page where people trade the token for a cookie
        self._public = public  # the origin under which browsers know this server, if that is told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        who = self._pass.admits(headers) if self._pass is not None else None
        scope[SIGNED_IN] = who is OWNER
        scope[TENANT] = who
        scope[BY_BEARER] = self._pass is not None and self._pass.is_bearer(headers)
        is_socket = scope["type"] == "websocket"
        changes = is_socket or scope["method"] not in SAFE
        if changes and not same_origin(headers, self._public):
            if is_socket:
                await send({"type": "websocket.close", "code": 1008, "reason": "another origin"})
            else:
                await _foreign(scope)(scope, receive, send)
        elif self._may_enter(scope, headers):
            await self._app(scope, receive, send)
        elif is_socket:
            await send({"type": "websocket.close", "code": 1008, "reason": "token needed"})
        elif self._login and self._wants_login(scope):
            await to_login(scope)(scope, receive, send)
        else:
            await self._refusal(scope)(scope, receive, send)

    def _wants_login(self, scope: Scope) -> bool:
        return self._pass is not None and scope[TENANT] is None and wants_page(scope)

    def _may_enter(self, scope: Scope, headers: Headers) -> bool:
        if self._pass is None:
            # Without a token, a web page elsewhere could reach us through a name that it points
            # at this machine; such a request carries that name.
            return is_loopback(host_of(headers.get("host", "")))
        if scope[SIGNED_IN]:
            return True
        access = self._accesses.of(scope)
        if access is Access.STORE:  # the route looks at the seal
            return is_sealed(scope["path"], headers.get("authorization", ""))
        if scope[TENANT] is not None and access is not None and access.for_tenants:
            return True
        return access is Access.ANYONE

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


def _foreign(scope: Scope) -> ASGIApp:
    error = Denied(
        "a page of another origin asks for this",
        hint="behind a proxy, tell the server its address: serve --public-url https://HOST",
    )
    return failed(error, scope, 403)


def offered(scope: Scope) -> list[str]:
    """The subprotocols that a WebSocket client offers."""
    return _listed(Headers(scope=scope).get("sec-websocket-protocol", ""))


def same_origin(headers: Headers, public: str | None = None) -> bool:
    """Whether it was a page of ours that asks, or no page at all. Browsers let any page open a
    WebSocket or send a form, with our cookie, and only say whose page it was. Cookies know no
    ports: a page on another one of this host is the same site, and another origin."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("origin")
    if origin is None or origin == public:
        return True
    scheme, _, rest = origin.partition("://")
    host = headers.get("host", "").lower()
    if public is not None and host == public.partition("://")[2]:
        return False  # under that name, nobody but the page with its scheme
    return scheme in ("http", "https") and rest.lower() == host


def _listed(header: str) -> list[str]:
    return [each.strip() for each in header.split(",") if each.strip()]


def host_of(header: str) -> str:
    """The host without its port: `localhost:8787`, `[::1]:8787`."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
