"""Servers that die, and several at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from mcp import Client
from tests.server.mcp.conftest import HOLDFAST, Connect, environ, refused, told

from holdfast.server.mcp.sessions import MOST
from holdfast.testing.processes import running


async def value(client: Client, code: str, subject: str = "work") -> object:
    result = await client.call_tool("execute", {"code": code, "subject": subject})
    return told(result)["value"]


async def test_after_kill_9_the_named_session_goes_on(stdio: Connect) -> None:
    async with stdio() as client:
        await value(client, "import os\ndef area(r): return 3 * r * r\nrows = list(range(1000))")
        server = await value(client, "os.getppid()")
        assert isinstance(server, int)
        os.kill(server, signal.SIGKILL)
        with pytest.raises(Exception):  # noqa: B017, PT011  whatever the client calls it
            await client.call_tool("execute", {"code": "1"}, read_timeout_seconds=5)
    async with stdio() as client:
        assert await value(client, "(len(rows), area(2))") == [1000, 12]
        assert await value(client, "os.getppid()") != server


async def test_a_session_has_one_owner(stdio: Connect) -> None:
    async with stdio() as one, stdio() as two:
        await value(one, "mine = 1")
        taken = refused(await two.call_tool("execute", {"code": "mine", "subject": "work"}))
        assert taken["kind"] == "conflict"
        assert "in use" in taken["message"]
        assert taken["hint"]
        # What needs no worker works all the same, and so does another session.
        listed = told(await two.call_tool("list", {"subject": "work"}))
        assert len(listed["checkpoints"]) == 1
        wanted = {"name": "other", "checkpoint": "~0", "subject": "work"}
        told(await two.call_tool("fork", wanted))
        assert await value(two, "mine", "other") == 1
    async with stdio() as two:
        assert await value(two, "mine") == 1


async def test_workers_make_room_and_come_back(stdio: Connect) -> None:
    async with stdio() as client:
        for number in range(MOST + 2):
            assert await value(client, f"n = {number}\nn", f"s{number}") == number
        listed = told(await client.call_tool("list", {"limit": 100}))
        assert sum(each["running"] for each in listed["subjects"]) == MOST
        assert await value(client, "n", "s0") == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_asked(workspace: Path, number: int) -> None:
    with running(
        [HOLDFAST, "mcp"],
        cwd=workspace,
        env={**os.environ, **environ()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\nnot json\n')
        process.stdin.flush()
        assert process.stdout.readline().startswith(b'{"jsonrpc":"2.0","id":1,')
        process.send_signal(number)
        until = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert process.returncode == 0
        assert b"Traceback" not in process.stderr.read()  # type: ignore[union-attr]


async def test_calls_on_one_session_wait_for_each_other(stdio: Connect) -> None:
    async with stdio() as client:
        await value(client, "seen = []")
        code = (
            "import time\nbegun = len(seen)\ntime.sleep(0.05)\nseen.append({0})\nlen(seen) - begun"
        )
        many = [value(client, code.replace("{0}", str(number))) for number in range(8)]
        assert await asyncio.gather(*many) == [1] * 8
        assert sorted(await value(client, "seen")) == list(range(8))  # type: ignore[call-overload]
