"""Asking a server to do what only it can: it runs the subject."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.cli.invocation import Invocation

SECONDS = 600.0
TOKEN_HINT = "HOLDFAST_TOKEN=... of that server"


def post(invocation: Invocation, url: str, path: str, body: Mapping[str, object]) -> dict[str, Any]:
    """The server's answer. Raises what it refused, Denied without its token, or HoldfastError."""
    import urllib.error
    import urllib.request

    from holdfast.model.errors import Denied, HoldfastError, UsageError, all_kinds

    if not url.startswith(("http://", "https://")):
        raise UsageError(f"not a server's address: {url!r}", hint="e.g. http://127.0.0.1:8787")
    request = urllib.request.Request(url.rstrip("/") + path, json.dumps(body).encode())
    token = invocation.settings()["token"].value
    if isinstance(token, str):
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # as checked
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as refused:
        told = _error(refused.read())
        if refused.code == 401:
            wanted = "its token" if token is None else "its token, not this one"
            raise Denied(f"{url} runs it and wants {wanted}", hint=TOKEN_HINT) from None
        made = all_kinds().get(str(told.get("kind")), HoldfastError)
        raise made(str(told.get("message", refused)), hint=told.get("hint")) from None
    except OSError as error:
        raise HoldfastError(f"{url} does not answer: {error}") from None


def _error(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
