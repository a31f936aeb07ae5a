"""Templates over HTTP: looked at, made by code, forgotten."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import HoldfastError, Unsupported
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.protocol.sandbox_requests import MAX_FRAME
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.keeping import TEMPLATES
from holdfast.sandbox.warmup import warm_up
from holdfast.server import shapes
from holdfast.server.crossing import Crossing
from holdfast.server.doors import Access, route
from holdfast.server.operations import Text, read_body

PATH = "/v1/templates"
ONE = f"{PATH}/{{name}}"


class NewTemplate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Code that is run in a new sandbox, and the name to keep that under."""

    name: Text
    code: Annotated[str, Meta(max_length=MAX_FRAME)] = ""
    language: Literal["python", "bash"] = "python"
    image: Text | None = None
    filesystem_snapshot_name: Text | None = None
    template: Text | None = None  # to begin with


class TemplateRoutes:
    """Routes to the templates of a fleet; without one, they say why there is none."""

    def __init__(self, fleet: Fleet | None, why_not: HoldfastError | None, ask: Crossing) -> None:
        self._found = fleet
        self._why_not = why_not or Unsupported("this server has no engine for sandboxes")
        self._ask = ask

    def routes(self) -> list[Route]:
        return [
            route(path, act, access=Access.OWNER, subject="templates", methods=[method])
            for method, path, act in (
                ("GET", PATH, self.listed),
                ("POST", PATH, self.made),
                ("DELETE", ONE, self.deleted),
            )
        ]

    async def listed(self, request: Request) -> Response:
        heads = await self._ask(
            lambda store: [
                each.head
                for each in store.subjects()
                if each.head is not None and each.subject.kind == "sandbox"
            ]
        )
        found = [each for each in heads if each.subject.name.startswith(TEMPLATES)]
        return JSONResponse({"templates": [self._described(each) for each in found]})

    async def made(self, request: Request) -> Response:
        asked = await read_body(request, NewTemplate, MAX_FRAME)
        assert isinstance(asked, NewTemplate)
        wanted = CreateRequest(
            idle_timeout=self._fleet().settings.idle_timeout,
            image=asked.image,
            filesystem_snapshot_name=asked.filesystem_snapshot_name,
            template=asked.template,
        )
        made = await warm_up(self._fleet(), asked.name, wanted, asked.language, asked.code)
        return JSONResponse({"template": self._described(made)})

    async def deleted(self, request: Request) -> Response:
        name = request.path_params["name"]
        await self._fleet().templates.delete(name)
        return JSONResponse({"id": name})

    def _described(self, head: Checkpoint) -> dict[str, object]:
        name = head.subject.name.removeprefix(TEMPLATES)
        ready = 0 if self._found is None else self._found.templates.ready(name)
        return {"name": name, "ready": ready, "checkpoint": shapes.checkpoint(head)}

    def _fleet(self) -> Fleet:
        if self._found is None:
            raise self._why_not
        return self._found
