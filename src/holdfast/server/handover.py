"""Where another server of the same store asks for a sandbox that runs here."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.model.errors import BadInput, Denied, NotFound
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.handing import PATH, SCHEME, Plea
from holdfast.server.answers import failed
from holdfast.server.doors import Access, route
from holdfast.server.operations import whole_body

ROUTE = f"{PATH}/{{id}}"


class Handover:
    """The seal on a request is asked for, and nothing else: servers know no token of each other."""

    def __init__(self, fleet: Fleet | None) -> None:
        self._fleet = fleet

    def route(self) -> Route:
        return route(
            ROUTE,
            self.asked,
            access=Access.STORE,
            subject="one sandbox that runs on this server and was created with handoff",
            methods=["POST"],
        )

    async def asked(self, request: Request) -> Response:
        scheme, _, seal = request.headers.get("authorization", "").partition(" ")
        body = await whole_body(request)
        if self._fleet is None:
            raise NotFound("this server has no sandboxes")
        store = self._fleet.store
        try:
            if scheme != SCHEME:
                raise Denied("the request is not sealed")
            plea = await asyncio.to_thread(Plea.read, body, seal, store)
        except Denied as error:
            return failed(error, request.scope, 401)  # 403 is for a wrong sandbox token
        if plea.sandbox_id != request.path_params["id"]:
            raise BadInput("the request speaks of another sandbox")
        # Once begun it is brought to its end, even when nobody waits for the answer any more.
        made = await asyncio.shield(asyncio.ensure_future(self._fleet.exits.hand_over(plea)))
        return JSONResponse({"checkpoint": made.id})
