"""Work in the background of a server neither ends nor waits in silence."""

from __future__ import annotations

import asyncio
import logging

import pytest
from starlette.websockets import WebSocket
from tests.server.conftest import Starter

from holdfast import Sandbox
from holdfast.server import background
from holdfast.server.crossing import Crossing
from holdfast.server.watching import Watcher
from holdfast.store import open_store


async def test_repeated_work_survives_its_failures(caplog: pytest.LogCaptureFixture) -> None:
    rounds: asyncio.Queue[int] = asyncio.Queue()

    async def work() -> None:
        rounds.put_nowait(rounds.qsize())
        if rounds.qsize() < 4:
            raise OSError("no disk" if rounds.qsize() < 3 else "no network")

    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(background.repeat("working", lambda: 0.01, work))
        async with asyncio.timeout(20):
            while rounds.qsize() < 5:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    told = [record.getMessage() for record in caplog.records]
    assert told == ["working failed, and is tried again"] * 2  # two kinds in a row


async def test_failures_are_told_to_those_who_wait(caplog: pytest.LogCaptureFixture) -> None:
    heard = asyncio.Event()

    async def work() -> None:
        raise KeyError("a defect")

    async def failed() -> None:
        heard.set()

    with caplog.at_level(logging.ERROR):
        task = background.begin("passing on", work, failed)
        async with asyncio.timeout(20):
            await heard.wait()
        await task
    assert [record.getMessage() for record in caplog.records] == ["passing on failed"]


async def test_watchers_hear_more_after_a_failure(holdfast_home: object) -> None:
    """A fact that cannot be told once does not end the watching."""
    told: asyncio.Queue[str] = asyncio.Queue()
    incoming: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    counted = 0

    def running() -> dict[str, object]:
        nonlocal counted
        counted += 1
        if counted == 4:  # behind what the `hello` took
            raise OSError("it cannot be looked at")
        return {"count": counted}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "websocket.send":
            told.put_nowait(str(message["text"]))

    scope = {"type": "websocket", "headers": [], "path": "/v1/events", "subprotocols": []}
    with open_store("memory://") as store:
        watcher = Watcher(Crossing(store), running, dict, 0.01)
        incoming.put_nowait({"type": "websocket.connect"})
        watching = asyncio.create_task(watcher.serve(WebSocket(scope, incoming.get, send)))  # type: ignore[arg-type]
        async with asyncio.timeout(20):
            words = [await told.get() for _ in range(4)]
        incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await watching
    assert any('"count":5' in each or '"count":6' in each for each in words), words


LISTENING = """
import socket
listener = socket.create_server(("127.0.0.1", 8000))
print("listening", flush=True)
connection, _ = listener.accept()
while connection.recv(1000):
    pass
print("the client has left", flush=True)
"""


async def test_ports_notice_clients_that_leave(start: Starter) -> None:
    """Also while nothing has been answered yet."""
    server = start("--engine", "process", "--pool", "0")
    sandbox = await Sandbox.create(server.address, token=server.token, ports=[8000])
    process = await sandbox.exec("python", LISTENING)
    assert await process.stdout.read() == "listening\n"
    host, _, port = server.address.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    path = f"/v1/sandboxes/{sandbox.sandbox_id}/ports/8000/"
    head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    writer.write(head.encode())
    await writer.drain()
    await asyncio.sleep(0.5)  # it is being waited for
    writer.close()
    async with asyncio.timeout(20):
        assert await process.stdout.read_all() == "the client has left\n"
    await sandbox.kill()
