"""A sandbox out of a checkpoint of another, over HTTP: it has an id and a token of its own, and
whoever attaches to it finds it as the other was."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.model.errors import UsageError
from holdfast.sandbox import keeping
from holdfast.server.operations import Nothing, Table
from holdfast.server.verbs import ONE

if TYPE_CHECKING:
    from holdfast.store import Store


COPIES = Table()


@COPIES.verb(
    "POST",
    f"{ONE}/sandbox",
    "Begin a sandbox with the content of another's checkpoint, to be attached to",
    answer="SandboxPasses",
    body=Nothing,
)
def begin_sandbox(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    origin = store.resolve(given["id"])
    if origin.subject.kind != "sandbox":
        raise UsageError(f"{origin.short} is a checkpoint of {origin.subject}, not of a sandbox")
    if origin.subject.name.startswith(keeping.SNAPSHOTS):
        name = origin.subject.name.removeprefix(keeping.SNAPSHOTS)
        raise UsageError(
            f"{origin.short} holds the files of a sandbox, and no sandbox",
            hint=f"create one with filesystem_snapshot_name={name!r}",
        )
    identity, token = secrets.token_hex(16), secrets.token_urlsafe(32)
    keeping.fork(store, origin, identity, keeping.token_hash(token))
    return {"sandboxes": [{"id": identity, "token": token}]}
