"""A server, as the command line speaks to it: JSON over HTTP, errors by their kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.remote import TOKEN_HINT

SECONDS = 600.0  # making something inside may take its time


def server_option(command: click.Command) -> click.Command:
    """Let a command say which server it speaks to."""
    option = click.Option(
        ["--server"],
        metavar="URL",
        help="The server; its token is HOLDFAST_TOKEN.  [default: where `serve` listens]",
    )
    command.params.append(option)
    return command


def ask(
    invocation: Invocation,
    method: str,
    path: str,
    body: Mapping[str, object] | None = None,
    *,
    server: str | None,
) -> Any:
    """What the server answers. Raises the error that it gave, or says that it cannot be reached."""
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    from holdfast.model.errors import BadInput, HoldfastError, all_kinds

    settings = {name: each.value for name, each in invocation.settings().items()}
    where = (server or f"http://{settings['host']}:{settings['port']}").rstrip("/")
    if not where.startswith(("http://", "https://")):
        raise BadInput(f"not a server's address: {where!r}", hint="e.g. http://127.0.0.1:8787")
    headers = {"Content-Type": "application/json"}
    if settings["token"]:
        headers["Authorization"] = f"Bearer {settings['token']}"
    data = None if body is None else json.dumps(body).encode()
    try:
        asked = Request(where + path, data, headers, method=method)
        with urlopen(asked, timeout=SECONDS) as answer:
            return json.load(answer)
    except HTTPError as error:
        try:
            told = json.load(error)["error"]
            kind, message, hint = told["kind"], told["message"], told.get("hint")
        except (ValueError, KeyError, TypeError):
            kind, message, hint = "fault", f"the server answered {error.code}", None
        if error.code == 401:
            hint = TOKEN_HINT  # the server's own is for those who write requests
        raise all_kinds().get(kind, HoldfastError)(message, hint=hint) from None
    except (URLError, OSError) as error:
        why = getattr(error, "reason", error)
        raise HoldfastError(
            f"the server at {where} cannot be reached: {why}",
            hint="start it with `holdfast serve`, or name it with --server",
        ) from None
