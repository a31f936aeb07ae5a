"""Looking closer, over HTTP: a checkpoint's content, and the store's health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.server import contents
from holdfast.server import health as measured
from holdfast.server.operations import Table
from holdfast.server.verbs import ONE
from holdfast.view.contents import look

if TYPE_CHECKING:
    from holdfast.store import Store

LOOKS = Table()


@LOOKS.verb(
    "GET",
    f"{ONE}/content",
    "What is inside a checkpoint, as far as it can be looked at",
    answer="Content",
)
def content(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return contents.contents(look(store, store.show(given["id"])))


@LOOKS.verb(
    "GET",
    "/v1/health",
    "What the store holds and takes, how that came, and when it was last verified",
    answer="Health",
)
def health(store: Store, given: Mapping[str, str], body: Struct) -> dict[str, object]:
    return measured.measure(store)
