"""One id from the client to the engine, and numbers that are documented."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.server.conftest import Starter

import holdfast
from holdfast.client import Sandbox
from holdfast.client.web import Web
from holdfast.model.errors import HoldfastError, NotFound
from holdfast.model.tracing import request

SOURCE = Path(holdfast.__file__).parent
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "telemetry.md"


def test_every_number_is_documented_and_every_documented_one_is_there(start: Starter) -> None:
    server = start()
    with server.client(server.token) as client:
        page = client.get("/metrics").text
    told = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE))
    table = re.findall(r"^\| `(holdfast_\w+)` \| (\w+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert dict(table) == told
    assert {name for name, kind in told.items() if kind == "counter"} == {
        name for name in told if name.endswith("_total")
    }


def test_every_span_is_documented_and_every_documented_one_is_there() -> None:
    source = "".join(each.read_text("utf-8") for each in sorted(SOURCE.rglob("*.py")))
    made = set(re.findall(r"""\bspan\(\s*f?"([\w.{}]+)\"""", source)) - {
        "bundle.{verb}",
        "sandbox.{verb}",
    }
    table = PAGE.read_text("utf-8").partition("## Spans")[2].partition("## Numbers")[0]
    rows = re.findall(r"^\| (`holdfast\..*?) \|", table, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`holdfast\.([\w.]+)`", row)}
    assert told - {"bundle.checkpoint", "bundle.restore", "sandbox.VERB"} == made


async def test_one_id_from_the_client_to_the_engine(start: Starter) -> None:
    server = start("--log-format", "json")
    with request("nightly-42"):
        sandbox = await Sandbox.create(server.address, token=server.token, enable_checkpoint=True)
        process = await sandbox.exec("bash", "echo $HOLDFAST_REQUEST_ID")
        assert await process.stdout.read_all() == "nightly-42\n"
        await sandbox.checkpoint(leave_running=True)
        with pytest.raises(NotFound) as missing:
            await sandbox.files.read("/root/nothing")
        assert str(missing.value.request_id).startswith("nightly-42:")
        with pytest.raises(HoldfastError) as refused:
            await sandbox.exec("cobol", "x")
        assert refused.value.request_id == "nightly-42"
        with pytest.raises(NotFound) as unknown:
            Web(server.address, server.token).get("/v1/checkpoints/nothing")
        assert unknown.value.request_id == "nightly-42"
        await sandbox.kill()
    with server.client(**{"X-Request-Id": "plain"}) as client:
        answer = client.get("/v1/subjects")
    assert answer.json()["error"]["request_id"] == answer.headers["X-Request-Id"] == "plain"
    _, errors = server.stop(15)
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    ours = [line for line in lines if line.get("request_id") == "nightly-42"]
    said = {(line["logger"], line["message"]) for line in ours}
    assert ("holdfast.server", "execute") in said
    assert ("holdfast.server", "checkpoint") in said
    assert ("holdfast.requests", "WEBSOCKET /create") in said
    assert "holdfast.engine" in {logger for logger, _ in said}
