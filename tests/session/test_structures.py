"""Structures of a capture: what did not change is the same value, and nothing else is."""

from __future__ import annotations

import pytest

from holdfast.model.errors import Corrupt
from holdfast.protocol.session_messages import ItemReport
from holdfast.session import layout
from holdfast.session.structures import Structures


def parts(count: int, *names: str) -> dict[str, bytes]:
    items = tuple(ItemReport(name=name, outcome="exact") for name in names)
    return {
        "environment": layout.encode(layout.Environment(execution_count=count)),
        "sources": layout.encode(layout.Sources()),
        "report": layout.encode(layout.ReportPart(items=items)),
        "namespace/small": b"no structure",
    }


def test_what_has_the_same_bytes_is_the_same_value() -> None:
    structures = Structures()
    first = structures.read(parts(1, "a"))
    second = structures.read(parts(2, "a"))
    third = structures.read(parts(2, "a", "b"))
    assert first.keys() == {"environment", "sources", "report"}
    assert second["report"] is first["report"]
    assert second["environment"] is not first["environment"]
    assert second["environment"].value == layout.Environment(execution_count=2)
    assert third["environment"] is second["environment"]
    assert [item["name"] for item in third["report"].plain.value["items"]] == ["a", "b"]


def test_what_is_missing_or_something_else() -> None:
    structures = Structures()
    structures.read(parts(1))
    with pytest.raises(Corrupt, match="left out report"):
        structures.read({name: data for name, data in parts(1).items() if name != "report"})
    with pytest.raises(Corrupt):
        structures.read(parts(1) | {"report": b"\xc1"})
