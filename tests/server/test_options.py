"""What whoever starts a server decides: limits, the pool, idle time, logs."""

from __future__ import annotations

import json
import signal
import time

from tests.server.conftest import Starter
from tests.server.sandbox_client import Wire, created


async def test_no_more_sandboxes_than_allowed(start: Starter) -> None:
    server = start("--engine", "process", HOLDFAST_MAX_SANDBOXES="1")
    wire = await created(server)
    async with Wire(server, "/create") as second:
        await second.send()
        assert await second.rest() == (["CREATING", "CREATION_ERROR", "error"], 4000)
        assert second.heard[-1]["kind"] == "busy"
        assert "1 sandboxes already" in second.heard[-1]["message"]
    await wire.send(action="kill_sandbox")
    await wire.rest()
    again = await created(server)
    await again.send(action="kill_sandbox")
    await again.rest()


async def test_limits_and_idle_time_of_the_server(start: Starter) -> None:
    server = start(
        *("--engine", "process", "--idle-timeout", "1.5", "--sandbox-disk", "16MiB"),
        *("--sandbox-processes", "20"),
    )
    wire = await created(server, idle_timeout=60)  # for what takes some time
    full = await wire.run("bash", "head -c 40M /dev/zero > /root/big; ls /root")
    assert "File size limit exceeded" in full or "No space left" in full or "big" in full
    assert int(await wire.run("bash", "stat -c %s /root/big")) <= 16 << 20
    await wire.send(action="kill_sandbox")
    await wire.rest()
    idle = await created(server)
    assert await idle.rest() == (["DELETING", "DELETED"], 1000)  # it was told no idle time
    # On a server of its own: nothing but what is to be ended may be ended for its time.
    wire = await created(start("--engine", "process", "--sandbox-seconds", "1"))
    await wire.send(language="bash", code="sleep 100")
    await wire.until("EXECUTION_DONE")
    assert wire.heard[-2]["signal"] == 9
    assert "more than 1 s" in wire.heard[-2]["reason"]
    await wire.send(action="kill_sandbox")
    await wire.rest()


def test_the_pool(start: Starter) -> None:
    server = start("--engine", "process", "--pool", "2")
    with server.client(server.token) as client:
        deadline = time.monotonic() + 60
        while "holdfast_sandboxes_ready 2\n" not in client.get("/metrics").text:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    none = start("--engine", "process", HOLDFAST_POOL="0")
    with none.client(none.token) as client:
        assert client.post("/execute", content="print(1)").text == "1\n"
        assert "holdfast_sandboxes_ready 0\n" in client.get("/metrics").text


def test_logs_of_json_lines(start: Starter) -> None:
    server = start("--engine", "process", "--log-format", "json")
    with server.client(server.token) as client:
        assert client.get("/status", headers={"X-Request-Id": "mine-1"}).headers[
            "x-request-id"
        ] == ("mine-1")
        odd = client.get("/v1/checkpoints/nothing?token=secret", headers={"X-Request-Id": "a b"})
        assert odd.status_code == 404
        made = odd.headers["x-request-id"]
        assert made != "a b"
    code, errors = server.stop(signal.SIGTERM)
    assert code == 0
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    asked = {line.get("request_id"): line for line in lines if line["logger"].endswith("requests")}
    assert (asked["mine-1"]["path"], asked["mine-1"]["outcome"]) == ("/status", 200)
    assert (asked[made]["method"], asked[made]["outcome"]) == ("GET", 404)
    assert asked[made]["ms"] > 0
    assert "secret" not in errors
    assert all({"time", "level", "message"} <= set(line) for line in lines)
