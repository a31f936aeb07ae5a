"""Live copies of a sandbox: what runs in it goes on in each of them."""

from __future__ import annotations

import pytest
from tests.server.conftest import Starter
from tests.server.sandbox_client import COUNTER, Wire, attach, created


async def counted(wire: Wire, process_id: str | None = None, more: int = 5) -> list[int]:
    """The next whole numbers that a counter says."""
    text = ""
    while text.count("\n") < more + 2:
        told = await wire.next()
        if told["event"] == "stdout" and told.get("process_id") == process_id:
            text += told["data"]
    return [int(each) for each in text.split("\n")[1:-1]]


def consecutive(found: list[int]) -> bool:
    return found == list(range(found[0], found[0] + len(found)))


async def end(wire: Wire) -> None:
    await wire.send(action="kill_sandbox")
    await wire.rest()


@pytest.mark.parametrize("engine", ["gvisor", "runc"])
async def test_what_counts_goes_on_in_each_copy(start: Starter, engine: str) -> None:
    """In the background, and as the execution itself."""
    server = start("--engine", engine, "--pool", "0")
    wire = await created(server, enable_checkpoint=True)
    await wire.send(language="python", code=COUNTER, process_id="beside")
    await wire.send(language="python", code=COUNTER)
    before = {each: await counted(wire, each) for each in ("beside", None)}
    await wire.send(action="fork", count=2, request_id="f")
    while wire.heard[-1]["event"] != "fork":
        assert wire.heard[-1]["event"] != "error", wire.heard[-1]
        await wire.next()
    passes = [(each["sandbox_id"], each["sandbox_token"]) for each in wire.heard[-1]["sandboxes"]]
    for identity in passes:
        async with attach(server, identity) as copy:
            await copy.until("RUNNING")
            await copy.send(action="reconnect")
            for each, known in before.items():
                told = await counted(copy, each)
                assert consecutive(told)
                assert told[0] > known[-1]  # it did not begin anew
            await end(copy)
    for each, known in before.items():  # and in the one they were made of
        told = await counted(wire, each)
        assert consecutive(told)
        assert told[-1] > known[-1]
    await end(wire)


async def test_where_memory_is_not_frozen_a_fork_during_an_execution_is_a_conflict(
    start: Starter,
) -> None:
    server = start("--engine", "process", "--pool", "0")
    wire = await created(server, enable_checkpoint=True)
    await wire.send(language="python", code=COUNTER)
    before = await counted(wire)
    await wire.send(action="fork", count=1, request_id="f")
    await wire.until("error")
    told = wire.heard[-1]
    assert (told["kind"], told["request_id"]) == ("conflict", "f"), told
    assert "an execution is running" in told["message"]
    assert "wait for it" in told["hint"]
    assert (await counted(wire))[-1] > before[-1]  # it goes on
    with server.client(server.token) as client:
        assert len(client.get("/v1/sandboxes").json()["sandboxes"]) == 1
        refused = client.post(f"/v1/sandboxes/{wire.identity[0]}/fork", json={"count": 1})
        assert refused.status_code == 409, refused.text
        assert "an execution is running" in refused.json()["error"]["message"]
    await end(wire)
