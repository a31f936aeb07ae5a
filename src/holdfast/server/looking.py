"""Looking closer, over HTTP: a checkpoint's content, and the store's health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.server import contents, health
from holdfast.server.verbs import ONE, Operation
from holdfast.view.contents import look

if TYPE_CHECKING:
    from holdfast.store import Store


def _content(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return contents.contents(look(store, store.show(given["id"])))


def _health(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return health.measure(store)


OPERATIONS = (
    Operation(
        name="content",
        method="GET",
        path=f"{ONE}/content",
        summary="What is inside a checkpoint, as far as it can be looked at",
        answer="Content",
        act=_content,
    ),
    Operation(
        name="health",
        method="GET",
        path="/v1/health",
        summary="What the store holds and takes, how that came, and when it was last verified",
        answer="Health",
        act=_health,
    ),
)
