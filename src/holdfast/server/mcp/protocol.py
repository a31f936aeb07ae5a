"""The protocol's side of it: the official SDK's server, with our tools and resources."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import mcp_types as types
import msgspec
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError

from holdfast import __version__
from holdfast.model.errors import BadInput, HoldfastError, NotFound
from holdfast.model.tracing import request, request_id
from holdfast.server import shapes
from holdfast.server.mcp.arguments import List
from holdfast.server.mcp.resources import MOST_LISTED, TEMPLATE
from holdfast.server.mcp.tools import TOOLS, Tool

if TYPE_CHECKING:
    from holdfast.server.mcp.answers import Answer, Moment
    from holdfast.server.mcp.desk import Desk

log = logging.getLogger("holdfast.mcp")
ERROR = "holdfast/error"
INSTRUCTIONS = (
    "Durable work. `execute` runs Python in a session whose state survives crashes and restarts:"
    " name the same subject again, and everything is there. Each execution is a checkpoint;"
    " `rollback` undoes the last one, `list` shows them, `diff` compares them, `fork` copies a"
    " subject to try something else. `checkpoint` marks a moment worth coming back to."
)
Context = ServerRequestContext[Any, Any]


def create(desk: Desk) -> Server[None]:
    """A server for any number of clients. It ends what the desk runs when it ends."""
    handlers = _Handlers(desk)

    @asynccontextmanager
    async def running(server: Server[None]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await desk.close()

    lifespan: Any = running
    return Server(
        "holdfast",
        version=__version__,
        title="Holdfast",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=handlers.tools,
        on_call_tool=handlers.call,
        on_list_resources=handlers.resources,
        on_list_resource_templates=handlers.templates,
        on_read_resource=handlers.read,
        on_completion=handlers.complete,
    )


class _Handlers:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def tools(
        self, context: Context, asked: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call(
        self, context: Context, asked: types.CallToolRequestParams
    ) -> types.CallToolResult:
        async def progress(written: float, line: str) -> None:
            await context.session.report_progress(written, message=line or None)

        with request():
            try:
                answer = await self._desk.call(asked.name, asked.arguments or {}, progress)
            except NotFound as error:
                if asked.name not in {tool.name for tool in TOOLS}:
                    raise MCPError(types.INVALID_PARAMS, str(error)) from None
                return _failed(error)
            except HoldfastError as error:
                return _failed(error)
            except Exception:  # a defect of ours must not end the agent's whole conversation
                log.exception("%s failed", asked.name)
                return _failed(HoldfastError("the tool failed", hint="the server's log says why"))
        return _answered(answer)

    async def resources(
        self, context: Context, asked: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        found = await self._desk.everything(List(limit=MOST_LISTED))
        return types.ListResourcesResult(resources=[_resource(each) for each in found.checkpoints])

    async def templates(
        self, context: Context, asked: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            name="checkpoint",
            title="A checkpoint",
            uri_template=TEMPLATE,
            description="What a checkpoint of a subject holds, and how it was made. The subject"
            " is kind/name, such as session/main.",
            mime_type="application/json",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(
        self, context: Context, asked: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(asked.uri)
        with request():
            try:
                told = await self._desk.read(uri)
            except HoldfastError as error:
                wrong = isinstance(error, (BadInput, NotFound))
                code = types.INVALID_PARAMS if wrong else types.INTERNAL_ERROR
                raise MCPError(code, _words(error), _document(error)) from None
        text = msgspec.json.format(msgspec.json.encode(told), indent=2).decode()
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type="application/json", text=text)]
        )

    async def complete(
        self, context: Context, asked: types.CompleteRequestParams
    ) -> types.CompleteResult:
        known = asked.context.arguments if asked.context else None
        try:
            found = await self._desk.completions(
                asked.argument.name, asked.argument.value, (known or {}).get("subject", "")
            )
        except HoldfastError:
            found = []  # whoever types goes on typing
        return types.CompleteResult(completion=types.Completion(values=found[:100]))


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=tool.open_world,
        ),
    )


def _answered(answer: Answer) -> types.CallToolResult:
    told = msgspec.to_builtins(answer)
    text = json.dumps(told, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=told
    )


def _failed(error: HoldfastError) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=_words(error))],
        is_error=True,
        _meta={ERROR: _document(error)},
    )


def _document(error: HoldfastError) -> dict[str, Any]:
    return {**shapes.error(error)["error"], "request_id": request_id.get()}


def _words(error: HoldfastError) -> str:
    hint = f"\nhint: {error.hint}" if error.hint else ""
    return f"{error.kind}: {error}{hint}"


def _resource(made: Moment) -> types.Resource:
    return types.Resource(
        uri=made.uri,
        name=f"{made.subject} {made.short}",
        title=made.reason or made.short,
        description=f"{made.subject}, {made.time}",
        mime_type="application/json",
        size=made.size_bytes,
    )
