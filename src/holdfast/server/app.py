"""The application: routes, and what each of them asks the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from holdfast import __version__
from holdfast.dashboard import example
from holdfast.dashboard.site import Site
from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint, Manifest
from holdfast.model.errors import (
    BadInput,
    Busy,
    Corrupt,
    Denied,
    HoldfastError,
    NotFound,
    Unsupported,
    UsageError,
)
from holdfast.model.report import Report
from holdfast.model.subject import KINDS, Kind, Subject
from holdfast.server import doors, handover, metrics, pages, shapes
from holdfast.server.answers import HEADERS, SIGNED_IN, SafeHeaders, failed
from holdfast.server.archives import Archives
from holdfast.server.bundles import BUNDLE_OPERATIONS, Bundles
from holdfast.server.consoles import Consoles
from holdfast.server.copies import COPIES
from holdfast.server.crossing import Crossing
from holdfast.server.doors import Access, route, websocket
from holdfast.server.drills import Drills
from holdfast.server.guard import COOKIE, COOKIE_SECONDS, Guard, Pass
from holdfast.server.holding import Holding
from holdfast.server.logs import Requests
from holdfast.server.looking import LOOKS
from holdfast.server.openapi import describe
from holdfast.server.operations import Nothing, read_body
from holdfast.server.ports import Ports
from holdfast.server.sandbox_verbs import SANDBOX_OPERATIONS
from holdfast.server.sandboxes import Sandboxes
from holdfast.server.sessions import Sessions
from holdfast.server.site import routes as site_routes
from holdfast.server.templates import TemplateRoutes
from holdfast.server.verbs import VERBS
from holdfast.server.watching import FAR_SECONDS, NEAR_SECONDS, Watcher
from holdfast.view.lineage import Lineage, trace
from holdfast.view.reports import read_report

if TYPE_CHECKING:
    from holdfast.sandbox.admission import Tenant
    from holdfast.sandbox.fleet import Fleet
    from holdfast.store import Store

log = logging.getLogger("holdfast.server")

OPERATIONS = (*VERBS, *LOOKS, *COPIES)  # on the store; those on what runs are apart
DESCRIBED = (*OPERATIONS, *SANDBOX_OPERATIONS, *BUNDLE_OPERATIONS)
MOST_CHECKPOINTS = 1000
LOGIN_BYTES = 8192
_ALL = "every subject of the store"
_OWN_PATH = re.compile(r"/(?![/\\])[^\\\x00-\x1f]*")


def create_app(
    store: Store,
    token: str | None,
    *,
    sandboxes: Sandboxes | None = None,
    sessions: Sessions | None = None,
    site: Site | None = None,
    drills: Drills | None = None,
    tenants: Mapping[str, Tenant] | None = None,
    public: str | None = None,
) -> Starlette:
    """The server's application on a store. Without a token it answers to loopback names only;
    the caller sees to it that it listens nowhere else. `public` is the origin under which browsers
    know it, where a proxy stands in front."""
    credentials = Pass(token, tenants) if token is not None else None
    boxes = sandboxes or Sandboxes(None)
    proving = drills or Drills(store)
    routes = _Routes(
        store, credentials, boxes.fleet, proving, has_site=site is not None, public=public
    )
    hosted = sessions or Sessions(store, "it was started without them")
    near = "://" not in store.url or store.url.startswith(("file:", "memory:"))
    watcher = Watcher(
        routes.ask,
        lambda: {"sessions": hosted.running(), "sandboxes": boxes.running()},
        proving.proven,
        NEAR_SECONDS if near else FAR_SECONDS,
    )
    ways = doors.only(
        [
            route("/status", routes.status, access=Access.ANYONE, subject="whether it lives"),
            route("/login", routes.login_form, access=Access.ANYONE, subject="the login page"),
            route(
                "/login",
                routes.login,
                access=Access.ANYONE,
                subject="the cookie, for the token",
                methods=["POST"],
            ),
            route(
                "/logout",
                routes.logout,
                access=Access.OWNER,
                subject="one's own cookie",
                methods=["POST"],
            ),
            *(site_routes(site) if site else routes.plain("")),
            *routes.plain("/plain"),
            websocket("/v1/events", watcher.serve, access=Access.OWNER, subject=_ALL),
            route("/v1/subjects", routes.subjects, access=Access.OWNER, subject=_ALL),
            route(
                "/v1/subjects/{kind}/{name:path}/lineage",
                routes.lineage,
                access=Access.OWNER,
                subject=_ALL,
            ),
            route("/v1/checkpoints", routes.checkpoints, access=Access.OWNER, subject=_ALL),
            route("/v1/checkpoints/{id}", routes.checkpoint, access=Access.OWNER, subject=_ALL),
            *boxes.routes(),
            *(each.route(boxes.fleet) for each in SANDBOX_OPERATIONS),
            Holding(boxes.fleet).route(),
            *Ports(boxes.fleet).routes(),
            *TemplateRoutes(boxes.fleet, boxes.why_not, routes.ask).routes(),
            *Consoles(hosted).routes(),
            *Bundles(store, boxes.fleet, hosted).routes(),
            *proving.routes(),
            route(
                "/v1/openapi.json", routes.openapi, access=Access.OWNER, subject="the description"
            ),
            route(
                "/v1/example",
                routes.example,
                access=Access.OWNER,
                subject="subjects of an example, which it makes",
                methods=["POST"],
            ),
            *(each.route(routes.ask) for each in OPERATIONS),
            *Archives(store).routes(),
            route("/metrics", routes.metrics, access=Access.OWNER, subject="numbers of all"),
            handover.Handover(boxes.fleet).route(),
        ]
    )
    return Starlette(
        lifespan=lambda app: _running(boxes.fleet, hosted, proving),
        routes=ways,
        middleware=[
            Middleware(Requests),
            Middleware(SafeHeaders),
            Middleware(Guard, credentials, routes=ways, public=public),
        ],
        exception_handlers={
            HoldfastError: _told,
            HTTPException: _no_route,
            Exception: _fault,
        },
    )


@contextlib.asynccontextmanager
async def _running(fleet: Fleet | None, sessions: Sessions, drills: Drills) -> AsyncIterator[None]:
    """Sandboxes stand ready while the server runs; they and sessions are put away when it stops."""
    if fleet is not None:
        fleet.begin()
    sessions.begin()
    drills.begin()
    yield
    await drills.close()
    for trouble in await sessions.close():
        log.warning("not checkpointed: %s", trouble)
    if fleet is not None:
        for trouble in await fleet.stop():
            log.warning("not checkpointed: %s", trouble)


class _Routes:
    def __init__(
        self,
        store: Store,
        credentials: Pass | None,
        fleet: Fleet | None,
        drills: Drills,
        *,
        has_site: bool,
        public: str | None,
    ) -> None:
        self._is_public_secure = public is not None and public.startswith("https:")
        self._drills = drills
        self._has_site = has_site
        self._store = store
        self.ask = Crossing(store)
        self._pass = credentials
        self._fleet = fleet

    def plain(self, at: str) -> list[Route]:
        """The pages that need nothing but a browser; without the dashboard, they stand for it."""
        return [
            route(path, page, access=Access.OWNER, subject=_ALL)
            for path, page in (
                (at or "/", self.subjects_page),
                (f"{at}/subjects/{{kind}}/{{name:path}}", self.lineage_page),
                (f"{at}/checkpoints/{{id}}", self.checkpoint_page),
            )
        ]

    async def status(self, request: Request) -> Response:
        told: dict[str, object] = {
            "status": "ok",
            "version": __version__,
            "engine": self._fleet.engine.name if self._fleet else None,
            "boundary": self._fleet.engine.capabilities.boundary if self._fleet else None,
        }
        if self._pass is None or request.scope[SIGNED_IN]:
            subjects = await self.ask(lambda store: store.subjects())
            told["subjects"] = len(subjects)
            told["checkpoints"] = sum(each.count for each in subjects)
            told["sandboxes"] = len(self._fleet.live) if self._fleet else 0
        return JSONResponse(told)

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(describe(DESCRIBED))

    async def example(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return JSONResponse({"subjects": await example.make(self._store)})

    async def metrics(self, request: Request) -> Response:
        subjects = await self.ask(lambda store: store.subjects())
        told = await asyncio.to_thread(metrics.page, subjects, self._fleet, self._drills)
        return Response(told, media_type=metrics.CONTENT_TYPE)

    async def login_form(self, request: Request) -> Response:
        return HTMLResponse(pages.login(_own_path(request.query_params.get("next", "/"))))

    async def login(self, request: Request) -> Response:
        form = parse_qs((await _body(request)).decode("utf-8", "replace"))
        target = _own_path(form.get("next", ["/"])[0])
        given = form.get("token", [""])[0].strip()
        if self._pass is None:
            return RedirectResponse(target, 303)
        if not self._pass.is_token(given):
            return HTMLResponse(pages.login(target, wrong=True), 401)
        answer = RedirectResponse(target, 303)
        answer.set_cookie(
            COOKIE,
            self._pass.cookie(),
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=self._is_public_secure or request.url.scheme == "https",
        )
        return answer

    async def logout(self, request: Request) -> Response:
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    async def subjects_page(self, request: Request) -> Response:
        summaries, url = await self.ask(lambda store: (store.subjects(), store.url))
        return HTMLResponse(
            pages.subjects(
                summaries,
                moment.now(),
                url,
                signed_in=_signed_in(request),
                has_site=self._has_site,
            )
        )

    async def lineage_page(self, request: Request) -> Response:
        found = await self._lineage(request)
        return HTMLResponse(pages.lineage(found, moment.now(), signed_in=_signed_in(request)))

    async def checkpoint_page(self, request: Request) -> Response:
        reference = request.path_params["id"]
        manifest, report = await self.ask(lambda store: _described(store, reference))
        head = await self.ask(lambda store: store.head(manifest.checkpoint.subject))
        everything = await self.ask(lambda store: store.list())
        return HTMLResponse(
            pages.manifest(
                manifest,
                head is not None and head.id == manifest.checkpoint.id,
                moment.now(),
                report=report,
                shorts={each.id: each.short for each in everything},
                signed_in=_signed_in(request),
            )
        )

    async def subjects(self, request: Request) -> Response:
        summaries = await self.ask(lambda store: store.subjects())
        return JSONResponse({"subjects": [shapes.subject(each) for each in summaries]})

    async def checkpoints(self, request: Request) -> Response:
        query = request.query_params
        subject = Subject.parse(query["subject"]) if query.get("subject") else None
        kind = _kind(query.get("kind") or None)
        limit = _limit(query.get("limit") or "100")

        def look(store: Store) -> list[Checkpoint]:
            if subject is not None and not store.history(subject):
                raise NotFound(f"there is no subject {subject}")
            return store.list(subject, kind, limit)

        return JSONResponse(shapes.checkpoints(await self.ask(look)))

    async def checkpoint(self, request: Request) -> Response:
        reference = request.path_params["id"]

        def look(store: Store) -> dict[str, object]:
            manifest, report = _described(store, reference)
            told = shapes.manifest(manifest, report)
            return {**told, "relatives": _shorts(store, manifest.checkpoint)}

        return JSONResponse(await self.ask(look))

    async def lineage(self, request: Request) -> Response:
        # Lineages are long, and this is several times faster than the standard library.
        told = msgspec.json.encode(shapes.lineage(await self._lineage(request)))
        return Response(told, media_type="application/json")

    async def _lineage(self, request: Request) -> Lineage:
        subject = Subject.parse(f"{request.path_params['kind']}/{request.path_params['name']}")

        def look(store: Store) -> Lineage:
            head = store.head(subject)
            found = trace(subject, store.list(), head.id if head else None, store.history(subject))
            if not found.rows and not found.moves:
                raise NotFound(f"no checkpoints of {subject}")
            return found

        return await self.ask(look)


def _described(store: Store, reference: str) -> tuple[Manifest, Report | None]:
    """A checkpoint, with its report where that can be read and trusted."""
    manifest = store.show(reference)
    try:
        return manifest, read_report(store, manifest)
    except (Corrupt, Denied):
        return manifest, None


def _shorts(store: Store, checkpoint: Checkpoint) -> dict[str, str]:
    """What people call the checkpoints that this one names, as far as they are there."""
    found = {}
    for each in {*checkpoint.parents, *filter(None, [checkpoint.rollback_of])}:
        with contextlib.suppress(NotFound):
            found[each] = store.resolve(each).short
    return found


def _signed_in(request: Request) -> bool:
    return bool(request.scope[SIGNED_IN])


def _kind(text: str | None) -> Kind | None:
    if text is None:
        return None
    for kind in KINDS:
        if text == kind:
            return kind
    raise BadInput(f"unknown kind of subject: {text!r}", hint=f"one of {', '.join(KINDS)}")


def _limit(text: str) -> int:
    # The length first: Python refuses to read a number of thousands of digits.
    is_number = len(text) <= 9 and text.isascii() and text.isdecimal()
    if not is_number or not 1 <= int(text) <= MOST_CHECKPOINTS:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise UsageError(f"bad limit: {shown!r}", hint=f"a number from 1 to {MOST_CHECKPOINTS}")
    return int(text)


def _own_path(target: str) -> str:
    """Where to go after the login: a path of this server, never another site."""
    return target if _OWN_PATH.fullmatch(target) else "/"


async def _body(request: Request) -> bytes:
    body = b""
    async for block in request.stream():
        body += block
        if len(body) > LOGIN_BYTES:
            raise BadInput("the form is too long")
    return body


async def _told(request: Request, error: Exception) -> Response:
    if not isinstance(error, HoldfastError):
        raise error
    # Whoever is refused for now may as well know that it is not for long.
    headers = {"Retry-After": "1"} if isinstance(error, Busy) else None
    return failed(error, request.scope, headers=headers)


async def _no_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    told: HoldfastError
    match status:
        case 404:
            told = NotFound(f"no such page: {request.url.path}")
        case 405:
            told = Unsupported(f"{request.url.path} does not answer to {request.method}")
        case 401 | 403:
            told = Denied("not allowed")
        case _:
            told = UsageError("the request cannot be understood")
    headers = error.headers if isinstance(error, HTTPException) else None
    return failed(told, request.scope, status, headers)


async def _fault(request: Request, error: Exception) -> Response:
    told = HoldfastError("the server failed to answer", hint="its log says why")
    # Starlette answers faults outside of all middleware, where nobody else adds the headers.
    return failed(told, request.scope, headers=HEADERS)
