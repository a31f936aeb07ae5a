"""One trace and one id, from the client through two servers to their engines."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.server.conftest import Server, Starter
from tests.spans import Exported, exported, here, starter
from tests.spans import spans as spans

from holdfast import Sandbox, StateManager
from holdfast.bundle import Bundle
from holdfast.client.web import Web
from holdfast.model.tracing import incoming, request
from holdfast.store import Store

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"


def above(span: Exported, spans: list[Exported]) -> list[str]:
    """The names of the spans that a span is in, from the inside out; `caller` is who began."""
    by_id = {each.id: each for each in spans}
    names = []
    while span.parent is not None:
        parent = span.parent.removeprefix("0x")
        if parent == CALLER:
            return [*names, "caller"]
        span = by_id[span.parent]
        names.append(span.name.removeprefix("holdfast."))
    return names


async def walked(first: Server, second: Server, store: Store) -> None:
    """What a client does: it makes a sandbox, uses it, binds it, and finds it elsewhere."""
    handed = {"enable_checkpoint": True, "enable_sandbox_handoff": True}
    sandbox = await Sandbox.create(first.address, token=first.token, **handed)
    process = await sandbox.exec("bash", "echo $HOLDFAST_REQUEST_ID")
    assert await process.stdout.read_all() == "walk-1\n"
    await sandbox.checkpoint(leave_running=True)
    await Bundle("both", [StateManager("plan", store=store), sandbox]).checkpoint()
    await asyncio.to_thread(Web(first.address, first.token).get, "/v1/subjects")
    there = await Sandbox.attach(
        second.address, sandbox.sandbox_id, sandbox.sandbox_token, token=second.token
    )
    await there.kill()
    await sandbox.detach()


@pytest.mark.timeout(300)
async def test_one_trace_through_servers_and_engines(
    start: Starter, store: Store, tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    files = [tmp_path / "first", tmp_path / "second"]
    hooks = starter(tmp_path / "hooks")
    first, second = (
        start("--pool", "0", "--log-format", "json", PYTHONPATH=hooks, SPANS_TO=str(each))
        for each in files
    )
    with request("walk-1"), incoming({"traceparent": TRACEPARENT}):
        await walked(first, second, store)
    logs = [server.stop(15)[1] for server in (first, second)]
    sides = [exported(each) for each in files]
    every = [*here(spans), *sides[0], *sides[1]]
    ours = [each for each in every if each.attributes.get("holdfast.request_id") == "walk-1"]

    assert {each.trace for each in ours} == {f"0x{TRACE}"}
    assert all(above(each, every)[-1:] == ["caller"] for each in ours)
    found = {(each.name.removeprefix("holdfast."), *above(each, every)) for each in ours}
    created = ("request", "caller")
    assert ("sandbox.make", *created) in found
    assert any(names[0] == "engine.command" and "sandbox.checkpoint" in names for names in found)
    assert ("sandbox.execute", *created) in found
    assert ("sandbox.freeze", "sandbox.checkpoint", *created) in found
    assert any(names[:2] == ("store.commit", "sandbox.freeze") for names in found)
    paths = {each.attributes["holdfast.path"] for each in ours if each.name == "holdfast.request"}
    assert {"/create", "/v1/subjects"} <= paths
    held = [each for each in ours if each.attributes.get("holdfast.path", "").endswith("/hold")]
    assert [above(each, every) for each in held] == [["bundle.checkpoint", "caller"]]

    # The second server asked the first, in the same trace and under the same id.
    [asking] = [each for each in sides[1] if each.name == "holdfast.sandbox.handover"]
    [asked] = [each for each in sides[0] if each.parent == asking.id]
    assert asked.name == "holdfast.request"
    assert asked.attributes["holdfast.request_id"] == "walk-1"
    assert any(each.name == "holdfast.sandbox.restore" for each in sides[1])

    # What the logs say is under that id, too, down to the engine's commands.
    for log, wanted in zip(logs, ({"requests", "server", "engine"}, {"requests"}), strict=True):
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        loggers = {line["logger"] for line in lines if line.get("request_id") == "walk-1"}
        assert {f"holdfast.{each}" for each in wanted} <= loggers
