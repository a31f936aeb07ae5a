"""A client that lost its server comes back with growing pauses, and never all at once."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from tests.client.scripted import begun
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from holdfast import Sandbox
from holdfast.client.link import FIRST_PAUSE, LONGEST_PAUSE, pauses

TRIES = 4  # that lead to nothing


@pytest.mark.parametrize("how", ["accepts", "refuses"])
async def test_pauses_grow_while_the_server_hangs_up(how: str) -> None:
    came: list[float] = []
    asked: list[dict[str, object]] = []
    clock = asyncio.get_running_loop().time

    async def talk(connection: ServerConnection) -> None:
        if len(came) == 1:
            await begun(connection)
            connection.transport.abort()
        elif len(came) > TRIES + 1:
            await connection.send('{"event":"status_update","status":"SANDBOX_RUNNING"}')
            while not asked or asked[-1]["action"] != "reconnect":
                asked.append(json.loads(await connection.recv()))
            for word in ("RUNNING", "EXECUTION_RUNNING", "EXECUTION_DONE"):
                told = {"event": "status_update", "status": f"SANDBOX_{word}"}
                await connection.send(json.dumps(told))
            await connection.wait_closed()

    def note(connection: ServerConnection, request: Request) -> Response | None:
        came.append(clock())
        trying = 1 < len(came) <= TRIES + 1
        return connection.respond(503, "not now") if trying and how == "refuses" else None

    async with serve(talk, "127.0.0.1", 0, process_request=note) as server, asyncio.timeout(60):
        port = server.sockets[0].getsockname()[1]
        async with await Sandbox.create(f"http://127.0.0.1:{port}") as sandbox:
            process = await sandbox.exec("bash", "anything")
            await process.wait()
    gaps = [after - before for before, after in itertools.pairwise(came)]
    assert len(gaps) == TRIES + 1
    # A slow machine makes them longer, never shorter.
    least = [FIRST_PAUSE / 2 * 2**number for number in range(len(gaps))]
    assert all(gap >= pause for gap, pause in zip(gaps, least, strict=True)), gaps
    assert asked[-1] == {"action": "reconnect", "offset": 0}


def test_pauses() -> None:
    planned = pauses(60)
    assert sum(planned[:-1]) < 60 <= sum(planned)
    wanted = FIRST_PAUSE
    for pause in planned:
        assert wanted / 2 <= pause <= wanted
        wanted = min(2 * wanted, LONGEST_PAUSE)
    assert pauses(60) != planned  # or all clients of a server would come back at the same moment
