"""What counts as activity, and what does not wait for what takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.conftest import Server, Starter
from tests.server.sandbox_client import Wire, created

from holdfast import Sandbox
from holdfast.server.mcp import arguments as given
from holdfast.server.mcp.boxes import SandboxLevel
from holdfast.server.mcp.passes import Passes

IDLE = 1.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One whose sandboxes are idle after a second."""
    folder = str(tmp_path_factory.mktemp("activity"))
    with Starter(HOLDFAST_HOME=folder, XDG_CONFIG_HOME=folder) as starter:
        yield starter("--engine", "process", "--pool", "0", "--idle-timeout", str(IDLE))


def test_execute_may_be_silent_for_long(server: Server) -> None:
    with server.client(server.token) as client:
        answer = client.post("/execute?language=bash", content="sleep 3; echo done")
        assert (answer.status_code, answer.text) == (200, "done\n")


def test_code_of_templates_may_take_long(server: Server) -> None:
    with server.client(server.token) as client:
        body = {"name": "slow", "code": "sleep 3; echo warm > /root/warm", "language": "bash"}
        made = client.post("/v1/templates", json=body)
        assert made.status_code == 200, made.text


async def nothing(*_: object, **__: object) -> None:
    """Progress that nobody wants to hear of."""


async def test_tools_keep_their_sandbox_awake(server: Server, tmp_path: Path) -> None:
    passes = Passes(tmp_path, server.address)
    level = SandboxLevel(server.address, server.token, passes, idle_seconds=1.0, awake_seconds=0.2)
    try:
        asked = given.Execute(code="sleep 3; echo done", language="bash")
        done = await level.execute("box", asked, nothing)
        assert (done.ok, done.stdout) == (True, "done\n")
    finally:
        await level.close()


async def test_tools_read_no_more_than_asked(server: Server, tmp_path: Path) -> None:
    passes = Passes(tmp_path, server.address)
    level = SandboxLevel(server.address, server.token, passes, idle_seconds=60.0)
    try:
        code = "truncate -s 1G /root/large; printf end >> /root/large"
        await level.execute("large", given.Execute(code=code, language="bash"), nothing)
        async with asyncio.timeout(20):  # all of it takes longer
            asked = given.ReadFile(path="/root/large", offset=1 << 30, limit=100)
            end = await level.read_file("large", asked)
            begin = await level.read_file("large", given.ReadFile(path="/root/large", limit=4))
    finally:
        await level.close()
    assert (end.content, end.size, end.complete) == ("end", (1 << 30) + 3, True)
    assert (begin.content, begin.complete) == ("\0\0\0\0", False)


async def busy(server: Server, language: str, code: str) -> Wire:
    """A sandbox with so much in it that storing its files takes a while, and something running."""
    wire = await created(server, idle_timeout=600)
    await wire.run("bash", "head -c 150M /dev/urandom > /root/large")
    await wire.send(language=language, code=code)
    await wire.until("EXECUTION_RUNNING")
    return wire


async def test_kills_do_not_wait_for_the_store(server: Server) -> None:
    wire = await busy(server, "bash", "sleep 600")
    await wire.send(action="snapshot_filesystem", name="large")
    await wire.send(action="kill_process")
    words = await wire.until("FILESYSTEM_SNAPSHOT_CREATED")
    assert "EXECUTION_FORCE_KILLED" in words, words
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_input_does_not_wait_for_the_store(server: Server) -> None:
    wire = await busy(server, "bash", "read name; echo hello $name")
    await wire.send(action="snapshot_filesystem", name="other")
    await wire.send(event="stdin", data="world\n")
    words = await wire.until("FILESYSTEM_SNAPSHOT_CREATED")
    assert "EXECUTION_DONE" in words, words
    assert "hello world\n" in wire.output()
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_requests_keep_their_order(server: Server) -> None:
    """What may overtake does so only where nothing is between that it could depend on."""
    wire = await created(server, idle_timeout=600)
    await wire.send(action="files", verb="write", path="/root/a", data="a", request_id="1")
    await wire.send(action="files", verb="read", path="/root/a", request_id="2")
    await wire.send(language="bash", code="read line; echo got $line; cat /root/a")
    await wire.send(event="stdin", data="input\n")
    await wire.until("EXECUTION_DONE")
    assert wire.output() == "got input\na"
    answers = [each for each in wire.heard if each["event"] == "files"]
    assert [each["request_id"] for each in answers] == ["1", "2"]
    assert answers[1]["data"] == "a"
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_many_requests_at_once_are_answered(server: Server) -> None:
    async with asyncio.timeout(120):
        sandbox = await Sandbox.create(server.address, token=server.token, idle_timeout=600)
        await asyncio.gather(
            *(sandbox.files.write(f"/root/{number}", str(number)) for number in range(40))
        )
        process = await sandbox.exec("bash", "ls /root | wc -l")
        assert await process.stdout.read_all() == "40\n"
        await sandbox.kill()
