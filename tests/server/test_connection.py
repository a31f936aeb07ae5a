"""The connection to a client: what it was told, and what it was not because it had gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.websockets import WebSocket

from holdfast.model.errors import HoldfastError
from holdfast.protocol.sandbox_flow import Fact, Phase
from holdfast.protocol.sandbox_messages import CreateRequest, ExecuteRequest, OutputEvent
from holdfast.sandbox.engines.process import ProcessEngine
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.settings import Settings
from holdfast.server.connection import Connection
from holdfast.server.executions import Executions
from holdfast.store import open_store
from holdfast.testing.waiting import until

SAYS = "import time\nfor n in range(5): print(n, flush=True); time.sleep(0.02)\n"


class Peer:
    """The other end of a WebSocket, which goes away after so many frames."""

    def __init__(self, most: int = 1000) -> None:
        self.heard: list[dict[str, Any]] = []
        self._most = most

    async def connection(self) -> Connection:
        scope = {"type": "websocket", "subprotocols": [], "headers": [], "path": "/"}
        socket = WebSocket(scope, self._receive, self._send)
        await socket.accept()
        return Connection(socket)

    async def _receive(self) -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def _send(self, message: Any) -> None:
        if message["type"] != "websocket.send":
            return
        if len(self.heard) == self._most:
            raise OSError("it has gone")
        self.heard.append(json.loads(message["text"]))

    @property
    def words(self) -> list[str]:
        named = (each.get("status") or each["event"] for each in self.heard)
        return [str(each).removeprefix("SANDBOX_") for each in named]


async def _opened(peer: Peer) -> Connection:
    connection = await peer.connection()
    await connection.tell(Fact.ATTACHED)
    return connection


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    (tmp_path / "ground").mkdir()
    with open_store(tmp_path / "store") as store:
        fleet = Fleet(store, ProcessEngine(), tmp_path / "ground", Settings(warm=0))
        try:
            yield fleet
        finally:
            assert await fleet.stop() == []


async def test_say_tells_whether_it_was_sent() -> None:
    connection = await _opened(Peer(most=2))
    piece = OutputEvent(event="stdout", data="x", offset=1)
    assert [await connection.say(piece) for _ in range(3)] == [True, False, False]
    assert connection.closed.is_set()


async def test_output_that_was_not_sent_is_sent_again(fleet: Fleet) -> None:
    """To whoever attaches next, without its saying from where."""
    sandbox, _ = await fleet.create(CreateRequest())
    execution = await sandbox.execute(ExecuteRequest(language="python", code=SAYS))
    await until(lambda: execution.exit is not None, "it has ended")
    pieces = len(execution.pieces())
    assert pieces > 2
    gone = Peer(most=2)  # RUNNING, and one piece
    first = Executions(await _opened(gone))
    first.follow_all(sandbox)
    await until(lambda: len(gone.heard) == 2, "it is followed")
    await first.follow_none()
    assert len(execution.pieces()) == pieces - 1
    there = Peer()
    second = Executions(await _opened(there))
    await second.catch_up(sandbox)
    await until(lambda: "exit" in there.words, "all of it is told")
    second.let_go()
    said = [each["data"] for each in (*gone.heard, *there.heard) if each["event"] == "stdout"]
    assert "".join(said) == "0\n1\n2\n3\n4\n"


async def test_what_others_do_waits_for_its_turn() -> None:
    peer = Peer()
    connection = await _opened(peer)
    await connection.tell(Fact.CHECKPOINT_BEGUN)
    for fact in (Fact.KILL_BEGUN, Fact.DELETE_BEGUN, Fact.DELETED, Fact.KILLED):
        await connection.tell_of_others(fact)
    assert peer.words == ["RUNNING", "CHECKPOINTING"]
    await connection.tell(Fact.CHECKPOINTED_RUNNING)
    assert peer.words[2:] == ["CHECKPOINTED", "KILLING", "DELETING", "DELETED", "KILLED"]
    assert connection.phase is Phase.CLOSED


async def test_what_others_do_is_not_told_to_the_gone() -> None:
    peer = Peer()
    connection = await _opened(peer)
    await connection.tell(Fact.CHECKPOINT_BEGUN)
    await connection.tell_of_others(Fact.KILL_BEGUN)
    await connection.tell(Fact.CHECKPOINT_FAILED, error=HoldfastError("the sandbox has ended"))
    await connection.tell_of_others(Fact.DELETE_BEGUN)
    assert peer.words == ["RUNNING", "CHECKPOINTING", "CHECKPOINT_ERROR", "error"]


async def test_a_kill_in_the_middle_of_a_checkpoint(fleet: Fleet) -> None:
    """By somebody who is not the client: nobody fails, and the client is told all of it."""
    sandbox, _ = await fleet.create(CreateRequest(enable_checkpoint=True))
    peer = Peer()
    connection = await _opened(peer)

    class Watches:
        tell_of_others = connection.tell_of_others

        async def went_back(self, *_: object) -> None:
            raise AssertionError("it was not taken anywhere")

    sandbox.client = Watches()
    await connection.tell(Fact.CHECKPOINT_BEGUN)
    async with asyncio.TaskGroup() as group:
        group.create_task(fleet.freezer.checkpoint(sandbox, reason="its own"))
        await asyncio.sleep(0)
        group.create_task(fleet.exits.kill_for(sandbox))
    await connection.tell(Fact.CHECKPOINTED_RUNNING)
    assert peer.words[-4:] == ["KILLING", "DELETING", "DELETED", "KILLED"]
    assert fleet.live == {}
