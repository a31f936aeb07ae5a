"""A server, as the command line speaks to it: JSON over HTTP, errors by their kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.invocation import Invocation

if TYPE_CHECKING:
    from urllib.request import Request

    from holdfast.model.errors import HoldfastError

SECONDS = 600.0  # making something inside may take its time
TOKEN_HINT = "HOLDFAST_TOKEN=... of that server"
ADDRESS_HINT = "e.g. http://127.0.0.1:8787"


def server_option(command: click.Command) -> click.Command:
    """Let a command say which server it speaks to."""
    option = click.Option(
        ["--server"],
        metavar="URL",
        help="The server; its token is HOLDFAST_TOKEN.  [default: where `serve` listens]",
    )
    command.params.append(option)
    return command


def post(invocation: Invocation, url: str, path: str, body: Mapping[str, object]) -> dict[str, Any]:
    """What the server that runs a subject answers. Raises what it refused, Denied without its
    token, or HoldfastError when it does not answer."""
    from holdfast.model.addresses import server_address
    from holdfast.model.errors import BadInput, Denied, HoldfastError, UsageError

    try:
        server_address(url)
    except BadInput as error:
        raise UsageError(str(error), hint=error.hint) from None
    token = _token(invocation)
    try:
        status, told = _send(_request("POST", url.rstrip("/") + path, token, body))
    except OSError as error:
        raise HoldfastError(f"{url} does not answer: {error}") from None
    if status == 401:
        wanted = "its token" if token is None else "its token, not this one"
        raise Denied(f"{url} runs it and wants {wanted}", hint=TOKEN_HINT)
    if status >= 400:
        raise _refusal(status, told)
    found: dict[str, Any] = told
    return found


def ask(
    invocation: Invocation,
    method: str,
    path: str,
    body: Mapping[str, object] | None = None,
    *,
    server: str | None,
) -> Any:
    """What the server answers that was named, or that the settings name. Raises the error that it
    gave, BadInput for what is no address, or HoldfastError when it cannot be reached."""
    from holdfast.model.addresses import server_address
    from holdfast.model.errors import HoldfastError

    settings = invocation.settings()
    default = f"http://{settings['host'].value}:{settings['port'].value}"
    where = (server or default).rstrip("/")
    server_address(where)
    try:
        status, told = _send(_request(method, where + path, _token(invocation), body))
    except OSError as error:
        why = getattr(error, "reason", error)
        raise HoldfastError(
            f"the server at {where} cannot be reached: {why}",
            hint="start it with `holdfast serve`, or name it with --server",
        ) from None
    if status >= 400:
        raise _refusal(status, told)
    return told


def _token(invocation: Invocation) -> str | None:
    """The server's token. Raises BadInput for one that cannot be sent, and does not repeat it."""
    from holdfast.model.addresses import check_token

    token = invocation.settings()["token"].value
    if not isinstance(token, str):
        return None
    check_token(token, "HOLDFAST_TOKEN")
    return token


def _request(
    method: str, url: str, token: str | None, body: Mapping[str, object] | None
) -> Request:
    from urllib.request import Request

    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    return Request(url, data, headers, method=method)


def _send(request: Request) -> tuple[int, Any]:
    """The status of the answer, and its document; None for a refusal in other words than JSON.
    Raises OSError when there is no answer, and HoldfastError for one that is not a server's."""
    from http.client import HTTPException

    from holdfast.model.errors import HoldfastError

    try:
        with _answer(request) as answer:
            status, content = answer.status, answer.read()
    except (HTTPException, UnicodeError) as error:  # what answers does not speak HTTP; no such name
        raise OSError(f"{type(error).__name__}: {error}") from None
    try:
        return status, json.loads(content)
    except ValueError:
        if status >= 400:
            return status, None
        raise HoldfastError(
            f"what answers at {request.full_url} is no server of Holdfast", hint=ADDRESS_HINT
        ) from None


def _answer(request: Request) -> Any:  # a response of http.client, or the error that holds one
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        return urlopen(request, timeout=SECONDS)  # its address was checked
    except HTTPError as refused:
        return refused


def _refusal(status: int, told: Any) -> HoldfastError:
    """The error that a server gave."""
    from holdfast.model.errors import HoldfastError, all_kinds

    try:
        error = told["error"]
        kind, message, hint = error["kind"], error["message"], error.get("hint")
    except (KeyError, TypeError):
        kind, message, hint = "fault", f"the server answered {status}", None
    if status == 401:
        hint = TOKEN_HINT  # the server's own is for those who write requests
    return all_kinds().get(kind, HoldfastError)(message, hint=hint)
