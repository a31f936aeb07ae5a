"""A server's `/v1` over HTTP, for what no WebSocket is needed for. Blocking."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from holdfast.client.link import Unreachable
from holdfast.model.addresses import check_token, server_address
from holdfast.model.errors import Denied, HoldfastError, all_kinds
from holdfast.model.tracing import outgoing, usable

SECONDS = 120.0
MOST_BYTES = 64 << 20


class Web:
    """Asks a server, with its token."""

    def __init__(self, url: str, token: str | None) -> None:
        """Raises BadInput for what is no address of a server."""
        self._parts = server_address(url)
        check_token(token)
        self._token = token

    def get(self, path: str, **query: str | int) -> dict[str, Any]:
        return self._ask("GET", f"{quote(path)}?{urlencode(query)}" if query else quote(path))

    def post(self, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        return self._ask("POST", quote(path), json.dumps(body or {}).encode())

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """Raises the error that the server answers, or Unreachable."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        link = kind(self._parts.hostname or "", self._parts.port, timeout=SECONDS)
        try:
            link.request(method, self._parts.path.rstrip("/") + path, body, dict(outgoing(headers)))
            answer = link.getresponse()
            data = answer.read(MOST_BYTES)
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            raise Unreachable(
                f"the server cannot be reached: {error}", hint="is it running, at this address?"
            ) from None
        finally:
            link.close()
        told = _read(data)
        if answer.status >= 400:
            raise _error(told, answer.status)
        return told


def _read(data: bytes) -> dict[str, Any]:
    try:
        told = json.loads(data or b"{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _error(told: Mapping[str, Any], status: int) -> HoldfastError:
    said = told.get("error")
    if isinstance(said, dict):
        made = all_kinds().get(str(said.get("kind")), HoldfastError)
        error = made(str(said.get("message")), hint=said.get("hint"))
        error.request_id = usable(said.get("request_id"))
        return error
    if status in (401, 403):
        return Denied("the server does not let us in", hint="give its token: HOLDFAST_TOKEN")
    return HoldfastError(f"the server answered {status}")
