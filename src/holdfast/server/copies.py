"""A sandbox out of a checkpoint of another, over HTTP: it has an id and a token of its own, and
whoever attaches to it finds it as the other was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

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
    identity, token = keeping.begin_copy(store, store.resolve(given["id"]))
    return {"sandboxes": [{"id": identity, "token": token}]}
