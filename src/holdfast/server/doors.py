"""The doors: every way into Holdfast, who may use it, and what is asked of whoever comes.

Routes and WebSockets are made here and nowhere else: `route` and `websocket` want to know who may
use what they make, the guard admits nobody but those, and `only` refuses a route that was made
otherwise. Ways in that are no routes stand in `OTHERS`, each with the code that checks it.
`scripts/generate-doors` makes docs/reference/doors.md out of both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, WebSocketRoute
from starlette.types import Scope
from starlette.websockets import WebSocket

LOGGED = "method, path, outcome, milliseconds and request id; never a query, a header or a body"
SAFE = frozenset({"GET", "HEAD"})  # methods that change nothing, and so may come from anywhere


class Access(Enum):
    """Who may use a route: who that is in words, and which token is asked for."""

    ANYONE = ("anyone", "none")
    OWNER = ("the owner", "the server's token, or the cookie of the login")
    TENANT = ("the owner and tenants", "the server's token, the cookie, or a tenant's token")
    SANDBOX = (
        "the owner and tenants",
        "the server's token, the cookie, or a tenant's token; and the sandbox's token",
    )
    PORT = (
        "the owner and tenants",
        "the server's token or the cookie; or a tenant's token and the sandbox's token",
    )
    STORE = ("servers of the same store", "a seal made with the store's key, and a sandbox's token")

    def __init__(self, who: str, token: str) -> None:
        self.who = who
        self.token = token

    @property
    def for_tenants(self) -> bool:
        return self in (Access.TENANT, Access.SANDBOX, Access.PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """One way in."""

    kind: str
    way: str
    who: str
    origin: str
    token: str
    subject: str
    logged: str
    checked_by: str  # the dotted name of the code that checks it
    opened_by: tuple[str, ...] = ()  # the functions that listen for it


class _HttpRoute(Route):
    """A route that knows who may use it."""

    access: Access
    subject: str


class _SocketRoute(WebSocketRoute):
    """A WebSocket's route that knows who may use it."""

    access: Access
    subject: str


def route(
    path: str,
    endpoint: Callable[[Request], Awaitable[Response]],
    *,
    access: Access,
    subject: str,
    methods: Sequence[str] = ("GET",),
    name: str | None = None,
) -> Route:
    """A route for HTTP; `subject` says in words what may be reached through it."""
    made = _HttpRoute(path, endpoint, methods=list(methods), name=name)
    made.access, made.subject = access, subject
    return made


def websocket(
    path: str,
    endpoint: Callable[[WebSocket], Awaitable[None]],
    *,
    access: Access,
    subject: str,
) -> WebSocketRoute:
    """The same for a WebSocket."""
    made = _SocketRoute(path, endpoint)
    made.access, made.subject = access, subject
    return made


def only(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """The same routes. Raises TypeError for one that does not say who may use it."""
    found = list(routes)
    for each in found:
        if not isinstance(each, _HttpRoute | _SocketRoute):
            raise TypeError(f"{each!r} says not who may use it: make it with doors.route")
    return found


class Accesses:
    """Who may use what a request asks for, by the routes of an application."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes = list(routes)
        self._plain = {getattr(each, "path", "") for each in self._routes}
        self._known: dict[tuple[str, str, str], Access] = {}  # of paths without parameters

    def of(self, scope: Scope) -> Access | None:
        """None where there is no such route."""
        key = (scope["type"], scope.get("method", ""), scope["path"])
        if (known := self._known.get(key)) is not None:
            return known
        found = next((each for each in self._routes if each.matches(scope)[0] is Match.FULL), None)
        if not isinstance(found, _HttpRoute | _SocketRoute):
            return None
        if scope["path"] in self._plain:
            self._known[key] = found.access
        return found.access


def of_routes(routes: Iterable[BaseRoute]) -> list[Door]:
    """The doors that an application's routes are."""
    doors: list[Door] = []
    for each in only(routes):
        assert isinstance(each, _HttpRoute | _SocketRoute)
        methods: Iterable[Any] = sorted(getattr(each, "methods", None) or ["WebSocket"])
        for method in methods:
            if method == "HEAD":
                continue  # goes with GET
            doors.append(
                Door(
                    kind="WebSocket" if method == "WebSocket" else "HTTP",
                    way=each.path if method == "WebSocket" else f"{method} {each.path}",
                    who=each.access.who,
                    origin="any" if method in SAFE else "none, or this server's own",
                    token=each.access.token,
                    subject=each.subject,
                    logged=LOGGED,
                    checked_by="holdfast.server.guard.Guard",
                    opened_by=("holdfast.server.listen.bind",),
                )
            )
    return doors


_NO_ORIGIN = "no browser reaches it"

OTHERS = (
    Door(
        kind="MCP",
        way="POST, GET, DELETE /mcp (`holdfast mcp --http`)",
        who="one agent's program",
        origin="none, or this server's own; on loopback only under a loopback name",
        token="HOLDFAST_MCP_TOKEN",
        subject="sessions of its store, files of its workspace, sandboxes of its server",
        logged=LOGGED,
        checked_by="holdfast.server.mcp.serving.application",
        opened_by=("holdfast.server.listen.bind",),
    ),
    Door(
        kind="MCP",
        way="stdin and stdout of `holdfast mcp`",
        who="the program that started it",
        origin=_NO_ORIGIN,
        token="none: it has the pipes",
        subject="sessions of its store, files of its workspace, sandboxes of its server",
        logged="warnings, on stderr",
        checked_by="holdfast.server.mcp.serving.over_stdio",
    ),
    Door(
        kind="CLI",
        way="every command of `holdfast`",
        who="a user who can read and write the store's files, or has the bucket's credentials",
        origin=_NO_ORIGIN,
        token="none; signatures with the key in HOLDFAST_HOME, `--trust` for those of other keys",
        subject="every subject of the store; one that runs elsewhere is left to its owner",
        logged="moves of heads and deletions are entries of the store's log",
        checked_by="holdfast.cli.invocation.Invocation.store",
    ),
    Door(
        kind="Unix socket",
        way="the abstract socket `holdfast-*` of a session that a program runs",
        who="programs of the same user, and root",
        origin=_NO_ORIGIN,
        token="none; the kernel tells the peer's user",
        subject="that session; a checkpoint of it, and nothing else",
        logged="the checkpoint",
        checked_by="holdfast.session.door.Door.open",
        opened_by=("holdfast.session.door.Door.open",),
    ),
    Door(
        kind="Unix socket",
        way="`leases.sock` of the container runtime, in /run/holdfast",
        who="root",
        origin=_NO_ORIGIN,
        token="none; the file's mode",
        subject="leases of containers of this machine",
        logged="entries of the store's log",
        checked_by="holdfast.oci.leaseholder.serve",
        opened_by=("holdfast.oci.leaseholder.serve",),
    ),
    Door(
        kind="Inside a sandbox",
        way="the Unix socket of the Python session",
        who="programs of that sandbox",
        origin=_NO_ORIGIN,
        token="none",
        subject="that sandbox's own session",
        logged="nothing",
        checked_by="holdfast.sandbox.interpreter.serve",
        opened_by=("holdfast.sandbox.interpreter.serve",),
    ),
    Door(
        kind="Inside a sandbox",
        way="127.0.0.1:3128, the proxy of a sandbox with egress",
        who="programs of that sandbox",
        origin=_NO_ORIGIN,
        token="none",
        subject="names on the sandbox's list, at public addresses unless `--egress any`",
        logged="nothing",
        checked_by="holdfast.sandbox.egress.allows",
        opened_by=("holdfast.sandbox.agent.switch.Switch.__init__",),
    ),
    Door(
        kind="Inside a sandbox",
        way="the pipes of a sandbox's agent",
        who="what runs in that sandbox, if it takes its agent over",
        origin=_NO_ORIGIN,
        token="none",
        subject="that sandbox; messages are bounded and checked, and a wrong one ends it",
        logged="a warning when it ends for that",
        checked_by="holdfast.sandbox.line.AgentLine",
    ),
    Door(
        kind="Hook",
        way="functions and code that a program gives to `Bundle.restore` as hooks",
        who="that program; code runs inside the member it is for, and nowhere else",
        origin=_NO_ORIGIN,
        token="none",
        subject="the members of the bundle",
        logged="nothing; a hook that fails makes the restore fail",
        checked_by="holdfast.bundle.hooks.check",
    ),
    Door(
        kind="Container",
        way="annotations `holdfast.*` of a container",
        who="whoever may create containers, as far as /etc/holdfast/policy.toml allows",
        origin=_NO_ORIGIN,
        token="none",
        subject="the checkpoints of the container's own name, in its namespace",
        logged="entries of the store's log",
        checked_by="holdfast.oci.config_handler.ConfigHandler",
    ),
    Door(
        kind="Container",
        way="the environment of a container or of its image, `HOLDFAST_*`",
        who="whoever made the image, as far as /etc/holdfast/policy.toml allows",
        origin=_NO_ORIGIN,
        token="none",
        subject="the checkpoints of the container's own name, in its namespace",
        logged="entries of the store's log",
        checked_by="holdfast.oci.config_handler.ConfigHandler",
    ),
    Door(
        kind="Container",
        way="`holdfast-runc`, as containerd, podman or Docker call it",
        who="root",
        origin=_NO_ORIGIN,
        token="none",
        subject="containers of this machine that opted in; others go to runc untouched",
        logged="entries of the store's log",
        checked_by="holdfast.oci.trampoline",
    ),
    Door(
        kind="Archive",
        way="a file or a stream that `import` takes in",
        who="whoever may use the CLI or `POST /v1/import`",
        origin=_NO_ORIGIN,
        token="none; every byte is verified before one is kept, and its signature judged",
        subject="subjects that the archive names; a foreign one is restored only with `--trust`",
        logged="entries of the store's log",
        checked_by="holdfast.store.transfer.importing",
    ),
    Door(
        kind="Bundle",
        way="the record of a bundle, which names its members",
        who="whoever may restore it",
        origin=_NO_ORIGIN,
        token="none; the record's signature, `--trust` for those of other keys",
        subject="the members that it names",
        logged="moves of heads are entries of the store's log",
        checked_by="holdfast.bundle.record.read",
    ),
)
