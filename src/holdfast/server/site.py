"""The dashboard's routes: its document at every address that it has a view for, and its files."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.dashboard.site import POLICY, Site
from holdfast.model.errors import NotFound
from holdfast.server.doors import Access, route

VIEWS = (
    "/",
    "/subjects/{kind}/{name:path}",
    "/checkpoints/{id}",
    "/diff",
    "/store",
    "/run",
    "/console/{kind}/{name:path}",
)


def routes(site: Site) -> list[Route]:
    """Where the page is."""

    async def document(request: Request) -> Response:
        return Response(
            site.document,
            media_type="text/html; charset=utf-8",
            headers={"Content-Security-Policy": POLICY},
        )

    async def asset(request: Request) -> Response:
        found = site.assets.get(request.path_params["name"])
        if found is None:
            raise NotFound(f"no such file: {request.url.path}")
        return Response(
            found.content,
            media_type=found.media_type,
            headers={"Cache-Control": "private, max-age=31536000, immutable"},
        )

    return [
        route("/assets/{name}", asset, access=Access.OWNER, subject="the dashboard's files"),
        *(
            route(path, document, access=Access.OWNER, subject="the dashboard's page")
            for path in VIEWS
        ),
    ]
