"""Operations over HTTP: tables from which the routes and the OpenAPI description both come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.model.errors import BadInput
from holdfast.server import doors
from holdfast.server.crossing import Crossing

if TYPE_CHECKING:
    from holdfast.store import Store

MAX_BODY = 64 * 1024
Text = Annotated[str, Meta(min_length=1, max_length=1000)]


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No body, or an empty object."""


Act = Callable[["Store", Mapping[str, str], Struct], dict[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One verb on one path. `act` is blocking and runs in a thread."""

    name: str
    method: str
    path: str
    summary: str
    answer: str  # a schema of openapi.py
    act: Act
    body: type[Struct] | None = None
    query: tuple[str, ...] = field(default=())

    def route(self, ask: Crossing) -> Route:
        async def endpoint(request: Request) -> Response:
            body = await read_body(request, self.body) if self.body else Nothing()
            given = {**request.path_params}
            for name in self.query:
                if name not in request.query_params:
                    raise BadInput(f"the parameter {name} is missing")
                given[name] = request.query_params[name]
            return JSONResponse(await ask(lambda store: self.act(store, given, body)))

        return doors.route(
            self.path,
            endpoint,
            access=doors.Access.OWNER,
            subject="every subject of the store",
            methods=[self.method],
            name=self.name,
        )


async def whole_body(request: Request, most: int = MAX_BODY) -> bytes:
    """Raises BadInput when it is too long."""
    body = bytearray()
    async for block in request.stream():
        body += block
        if len(body) > most:
            raise BadInput(f"the body is longer than {most} bytes")
    return bytes(body)


async def read_body(request: Request, kind: type[Struct], most: int = MAX_BODY) -> Struct:
    """The body as what it must be; an absent one is all defaults. Raises BadInput."""
    body = await whole_body(request, most)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInput(f"the body cannot be used: {error}") from None


class Table(list[Operation]):
    """Operations in the order in which they were written down."""

    def verb(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        answer: str,
        body: type[Struct] | None = None,
        query: tuple[str, ...] = (),
    ) -> Callable[[Act], Act]:
        """Enter a function, under its own name as the description spells names."""

        def enter(act: Act) -> Act:
            self.append(
                Operation(
                    name=_spelled(act.__name__),
                    method=method,
                    path=path,
                    summary=summary,
                    answer=answer,
                    act=act,
                    body=body,
                    query=query,
                )
            )
            return act

        return enter


def _spelled(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
