"""One id for a request, and spans where somebody wants them."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.spans import spans as spans

from holdfast.bundle import Bundle
from holdfast.model.tracing import incoming, new_id, outgoing, request, request_id, span, usable
from holdfast.session import Session
from holdfast.state import StateManager
from holdfast.store import open_store


def named(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {each.name: each for each in spans.get_finished_spans()}


def test_ids_that_cannot_be_are_not_taken() -> None:
    assert usable("nightly-42:1.a_b") == "nightly-42:1.a_b"
    for bad in ("", "a b", "a\nb", "x" * 101, "é", None, 5):
        assert usable(bad) is None
    assert usable(new_id())


async def test_an_id_holds_for_what_it_starts() -> None:
    assert request_id.get() == ""
    with request("one"):
        assert await asyncio.to_thread(request_id.get) == "one"
        assert await asyncio.create_task(_inside()) == "one"
        with request("two"):
            assert request_id.get() == "two"
        with request("not one"):  # no id: the one that is there stays
            assert request_id.get() == "one"
    assert request_id.get() == ""


async def _inside() -> str:
    return request_id.get()


def test_nobody_loads_opentelemetry_for_a_span() -> None:
    code = (
        "import sys\n"
        "from holdfast.model.tracing import span, outgoing, incoming, request\n"
        "from holdfast import StateManager, open_store, sync\n"
        "with request('a'), incoming({'traceparent': 'x'}), span('step', subject='s'): pass\n"
        "print(outgoing({}), [name for name in sys.modules if 'opentelemetry' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{} []\n"


def test_a_trace_goes_from_one_side_to_the_other(spans: InMemorySpanExporter) -> None:
    with request("there"), span("outer", subject="state/x", nothing=None):
        carried = outgoing({})
    assert carried["X-Request-Id"] == "there"
    with incoming(carried), span("inner"):
        pass
    found = named(spans)
    outer, inner = found["holdfast.outer"], found["holdfast.inner"]
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert inner.context.trace_id == outer.context.trace_id
    assert dict(outer.attributes or {}) == {
        "holdfast.subject": "state/x", "holdfast.request_id": "there",
    }  # fmt: skip
    with incoming({}), span("alone"):
        pass
    assert named(spans)["holdfast.alone"].parent is None


async def test_a_session_has_spans(spans: InMemorySpanExporter) -> None:
    with open_store("memory://") as store, request("work"):
        async with Session("traced", store=store) as session:
            await session.execute("x = 1")
            made = await session.checkpoint()
            await session.restore(made)
            copy = await session.fork("copy")
            await copy.shutdown()
            await session.checkpoint()
            await session.rollback()
    found = named(spans)
    verbs = {"execute", "checkpoint", "restore", "fork", "rollback"}
    assert found.keys() >= {
        *(f"holdfast.session.{verb}" for verb in verbs),
        "holdfast.store.commit",
    }
    for each in found.values():
        assert (each.attributes or {})["holdfast.request_id"] == "work"
    commits = [each for each in spans.get_finished_spans() if each.name == "holdfast.store.commit"]
    inside = {each.context.span_id: each.name for each in spans.get_finished_spans()}
    parents = {inside.get(each.parent.span_id) for each in commits if each.parent}
    assert "holdfast.session.checkpoint" in parents


async def test_a_bundle_has_spans(spans: InMemorySpanExporter) -> None:
    with open_store("memory://") as store, request("both"):
        bundle = Bundle("all", [StateManager("plan", store=store)])
        await bundle.restore(await bundle.checkpoint())
    found = named(spans)
    for verb in ("checkpoint", "restore"):
        attributes = found[f"holdfast.bundle.{verb}"].attributes or {}
        assert attributes["holdfast.subject"] == "bundle/all"
        assert attributes["holdfast.request_id"] == "both"
