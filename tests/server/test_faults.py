"""What nobody foresaw: the client is told that the server failed, and the log says how."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect
from tests.server.sandbox_client import word_of

from holdfast.sandbox.contract import Build
from holdfast.sandbox.engines.process import ProcessBox, ProcessEngine
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.settings import Settings
from holdfast.server.app import create_app
from holdfast.server.sandboxes import Sandboxes
from holdfast.store import open_store

REASON = "nobody foresaw this"


class Faulty(ProcessEngine):
    """An engine with a fault in it, once somebody has asked for it."""

    faulty = False

    async def create(self, build: Build) -> ProcessBox:
        if self.faulty:
            raise RuntimeError(REASON)
        return await super().create(build)


@pytest.fixture
def engine() -> Faulty:
    return Faulty()


@pytest.fixture
def client(tmp_path: Path, engine: Faulty) -> Iterator[TestClient]:
    (tmp_path / "ground").mkdir()
    with open_store(tmp_path / "store") as store:
        fleet = Fleet(store, engine, tmp_path / "ground", Settings(warm=0))
        app = create_app(store, "word", sandboxes=Sandboxes(fleet))
        with TestClient(app, headers={"Authorization": "Bearer word"}) as client:
            yield client


def heard(socket: WebSocketTestSession) -> tuple[list[str], int]:
    """Everything until the server closes, and how it closed."""
    words = []
    while True:
        try:
            words.append(word_of(socket.receive_json()))
        except WebSocketDisconnect as gone:
            return words, gone.code


def test_a_fault_while_a_sandbox_is_made(
    client: TestClient, engine: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    engine.faulty = True
    with client.websocket_connect("/create") as socket:
        socket.send_json({})
        assert heard(socket) == (["CREATING", "ERROR", "error"], 4000)
    assert REASON in caplog.text
    engine.faulty = False
    with client.websocket_connect("/create") as socket:
        socket.send_json({})
        assert [word_of(socket.receive_json()) for _ in range(3)][-1] == "RUNNING"
        socket.send_json({"action": "kill_sandbox"})
        assert heard(socket) == (["KILLING", "DELETING", "DELETED", "KILLED"], 1000)


def test_a_fault_in_the_middle_and_one_while_it_comes_back(
    client: TestClient, engine: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    """The sandbox goes on, or stays in its checkpoint: it can be attached to afterwards."""
    with client.websocket_connect("/create") as socket:
        socket.send_json({"enable_checkpoint": True})
        told = [socket.receive_json() for _ in range(3)]
        assert word_of(told[-1]) == "RUNNING"
        engine.faulty = True
        socket.send_json({"action": "fork"})
        assert heard(socket) == (["ERROR", "error"], 4000)
    assert REASON in caplog.text
    identity = told[1]
    way = f"/attach/{identity['sandbox_id']}?sandbox_token={identity['sandbox_token']}"
    with client.websocket_connect(way) as socket:
        assert word_of(socket.receive_json()) == "RUNNING"
        socket.send_json({"action": "checkpoint"})
        words, code = heard(socket)
        assert (words[-1], code) == ("CHECKPOINTED", 1000)
    with client.websocket_connect(way) as socket:
        assert heard(socket) == (["RESTORING", "ERROR", "error"], 4000)
    engine.faulty = False
    with client.websocket_connect(way) as socket:
        assert [word_of(socket.receive_json()) for _ in range(2)] == ["RESTORING", "RUNNING"]
        socket.send_json({"action": "kill_sandbox"})
        assert heard(socket)[1] == 1000
