"""Passes: the tokens of the sandboxes that this program made; attaching needs only the id then."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from holdfast.model.errors import UsageError


@dataclass(frozen=True, slots=True)
class Pass:
    """What lets somebody in: the sandbox's token, and the server's."""

    sandbox_token: str = field(repr=False)
    token: str | None = field(repr=False)


_passes: dict[str, Pass] = {}


def remember(sandbox_id: str, sandbox_token: str, token: str | None) -> None:
    _passes[sandbox_id] = Pass(sandbox_token, token)


def forget(sandbox_id: str) -> None:
    """The sandbox is no more."""
    _passes.pop(sandbox_id, None)


def server_token(given: str | None) -> str | None:
    """The server's token: what is given, or `HOLDFAST_TOKEN`."""
    return given or os.environ.get("HOLDFAST_TOKEN") or None


def pass_for(sandbox_id: str, sandbox_token: str | None, token: str | None) -> Pass:
    """For somebody who knows the id and perhaps the tokens. Raises UsageError."""
    known = _passes.get(sandbox_id)
    own = sandbox_token or (known.sandbox_token if known else None)
    if own is None:
        raise UsageError(
            f"the token of sandbox {sandbox_id} is not known here", hint="give sandbox_token"
        )
    return Pass(own, server_token(token or (known.token if known else None)))
