"""`holdfast mcp`."""

from __future__ import annotations

import asyncio
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.extra import extra
from holdfast.cli.invocation import Invocation
from holdfast.cli.quantities import Port

if TYPE_CHECKING:
    from holdfast.server.mcp.contract import Level

HTTP_PORT = 8788


@click.command("mcp")
@click.option(
    "--session",
    "session",
    metavar="NAME",
    default="main",
    show_default=True,
    help="The session of calls that name no subject.",
)
@click.option(
    "--workspace",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    default=".",
    help="Where sessions run, and whose files the file tools reach."
    "  [default: the working directory]",
)
@click.option(
    "--server", "server", metavar="URL", help="A server for sandboxes; HOLDFAST_TOKEN is its token."
)
@click.option(
    "--http", "http", is_flag=True, help="Serve HTTP at /mcp instead of stdin and stdout."
)
@click.option(
    "--host",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    help="With --http: where to listen.",
)
@click.option(
    "--port",
    type=Port(),
    metavar="PORT",
    default=HTTP_PORT,
    show_default=True,
    help="With --http: 0 takes a free one.",
)
@click.option("--show-secrets", is_flag=True, help="Do not mask what looks like a key in answers.")
@click.pass_obj
def command(
    invocation: Invocation,
    session: str,
    workspace: Path,
    server: str | None,
    http: bool,
    host: str,
    port: int,
    show_secrets: bool,
) -> None:
    """Give agents the verbs as tools (Model Context Protocol).

    An agent's program starts it and speaks to it over stdin and stdout. Sessions are durable:
    started again, it goes on with them. With --http it prints its address and its token, which is
    HOLDFAST_MCP_TOKEN when that is set and a new one otherwise.
    """
    from holdfast.model.addresses import check_token
    from holdfast.model.errors import BadInput

    with extra("mcp", "the server of tools"):
        from holdfast.server.logs import set_up
        from holdfast.server.mcp.desk import Desk
        from holdfast.server.mcp.protocol import create
        from holdfast.server.mcp.serving import over_http, over_stdio
        from holdfast.server.mcp.sessions import SessionLevel
        from holdfast.server.mcp.workspace import Workspace

    if not workspace.is_dir():
        raise BadInput(f"there is no folder {workspace}", hint="--workspace names one that exists")
    set_up("text")
    with invocation.store(create=True) as store:
        sessions = SessionLevel(store, Workspace(workspace), show_secrets=show_secrets)
        desk = Desk(
            sessions,
            _sandboxes(invocation, server, show_secrets),
            default=session,
            show_secrets=show_secrets,
        )
        tools = create(desk)
        if not http:
            try:
                asyncio.run(over_stdio(tools))
            except asyncio.CancelledError:
                invocation.tell("stopped")
            return
        from holdfast.server.guard import is_loopback
        from holdfast.server.listen import address, bind

        listener = bind(host, port)
        token = invocation.environ.get("HOLDFAST_MCP_TOKEN") or secrets.token_urlsafe(32)
        check_token(token, "HOLDFAST_MCP_TOKEN")
        if not is_loopback(host):
            invocation.warn("whoever has the token runs code as you; put TLS in front")
        url = f"{address(listener)}/mcp"
        told = {"address": url, "token": token, "store": store.url}

        def tell() -> None:
            invocation.show(told, lambda: f"tools are at {url}\ntoken: {token}")
            sys.stdout.flush()

        over_http(tools, listener, token, tell)
    invocation.tell("stopped")


def _sandboxes(invocation: Invocation, server: str | None, show_secrets: bool) -> Level | None:
    if server is None:
        return None
    from holdfast.model.home import home
    from holdfast.server.mcp.boxes import SandboxLevel
    from holdfast.server.mcp.passes import Passes

    token = invocation.settings()["token"].value
    kept = Passes(home(invocation.environ) / "mcp", server)
    given = None if token is None else str(token)
    return SandboxLevel(server, given, kept, show_secrets=show_secrets)
