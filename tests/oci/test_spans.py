"""A container's checkpoint has spans, down to runc's commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.spans import spans as spans

from holdfast.model.tracing import request
from holdfast.oci.overview import Overview
from holdfast.testing.bundles import Bundle
from holdfast.testing.waiting import eventually


@pytest.mark.timeout(200)
def test_a_container_has_spans(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    made = Bundle(tmp_path / "it", ["sleep", "1000"], ["HOLDFAST_NAME=shop"])
    try:
        made.runc("create")
        made.runc("start")
        eventually(lambda: made.status() == "running", "it runs")
        name = Path("/proc", (made.folder / "pid").read_text(), "comm")
        eventually(lambda: name.read_text() == "sleep\n", "it is what it is to be")
        with request("by-hand"):
            Overview(made.environ).checkpoint("shop", reason="traced", leave_running=True)
    finally:
        made.close()
    found = spans.get_finished_spans()
    [taken] = [each for each in found if each.name == "holdfast.container.checkpoint"]
    attributes = {"holdfast.subject": "container/runc/shop", "holdfast.request_id": "by-hand"}
    assert dict(taken.attributes or {}) == attributes
    commands = [each for each in found if each.name == "holdfast.engine.command"]
    inside = [each for each in commands if each.parent is not None]
    assert {each.parent.span_id for each in inside if each.parent} == {taken.context.span_id}
    assert {(each.attributes or {})["holdfast.command"] for each in inside} == {"runc"}
