"""Sessions that the server runs: started, typed into, frozen, brought back, ended."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.server.conftest import HOLDFAST, Server, Starter
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from holdfast import sync
from holdfast.store import Store


@pytest.fixture
def server(start: Starter) -> Server:
    return start("--engine", "process")


@pytest.fixture
def api(server: Server) -> Iterator[httpx.Client]:
    with server.client(server.token) as client:
        client.timeout = httpx.Timeout(60)
        yield client


def attach(server: Server, name: str) -> ClientConnection:
    url = server.address.replace("http", "ws") + f"/v1/sessions/{name}/console"
    return connect(
        url,
        subprotocols=["holdfast.v1", f"holdfast.token.{server.token}"],  # type: ignore[list-item]
        open_timeout=60,
    )


def say(console: ClientConnection, kind: str, **fields: object) -> None:
    console.send(json.dumps({"type": kind, **fields}))


def heard(console: ClientConnection, kind: str) -> dict[str, object]:
    while True:
        message: dict[str, object] = json.loads(console.recv(timeout=60))
        if message["type"] == kind:
            return message


def heard_until_the_end(console: ClientConnection) -> tuple[str, dict[str, object]]:
    """What a cell printed, which may come in pieces, and its result."""
    said = ""
    while True:
        message: dict[str, object] = json.loads(console.recv(timeout=60))
        if message["type"] == "OutputMessage":
            said += str(message["text"])
        if message["type"] == "ResultMessage":
            return said, message


def run(console: ClientConnection, code: str) -> dict[str, object]:
    say(console, "ExecuteMessage", execution_id=0, code=code)
    return heard(console, "ResultMessage")


def started(api: httpx.Client, name: str) -> dict[str, object]:
    answer = api.post("/v1/sessions", json={"name": name})
    assert answer.status_code == 200, answer.text
    told: dict[str, object] = answer.json()
    return told


def test_a_checkpoint_from_the_command_line(
    server: Server, api: httpx.Client, store: Store
) -> None:
    started(api, "work")
    with attach(server, "work") as console:
        run(console, "x = 20")
        command = [HOLDFAST, "checkpoint", "session/work", "--reason", "from outside"]
        token = str(server.token)
        done = subprocess.run(
            command, env={**os.environ, "HOLDFAST_TOKEN": token}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "from outside" in done.stdout
        head = store.head("session/work")
        assert head is not None
        assert head.reason == "from outside"
        refused = subprocess.run(
            command, env={**os.environ, "HOLDFAST_TOKEN": "wrong"}, capture_output=True, text=True
        )
        assert refused.returncode == 8
        assert "wants its token, not this one" in refused.stderr
        listing = [HOLDFAST, "template", "list", "--server", server.address]
        refused = subprocess.run(
            listing, env={**os.environ, "HOLDFAST_TOKEN": "wrong"}, capture_output=True, text=True
        )
        assert refused.returncode == 8
        assert "hint: HOLDFAST_TOKEN=" in refused.stderr


def test_a_whole_life(server: Server, api: httpx.Client, store: Store) -> None:
    assert started(api, "work/one") == {
        "name": "work/one",
        "subject": "session/work/one",
        "report": [],
    }
    with attach(server, "work/one") as console, attach(server, "work/one") as other:
        assert run(console, "x = 20\nprint('hello')\nx + 1")["text"] == "21"
        # Whoever is there sees what was typed and what came of it.
        assert heard(other, "ExecuteMessage")["code"] == "x = 20\nprint('hello')\nx + 1"
        said, result = heard_until_the_end(other)
        assert said == "hello\n"
        assert result["text"] == "21"
        made = api.post("/v1/sessions/work/one/checkpoint", json={"reason": "at 20"}).json()
        assert made["checkpoint"]["reason"] == "at 20"
        run(console, "x = 0")
        api.post("/v1/sessions/work/one/checkpoint", json={})
        back = api.post("/v1/sessions/work/one/rollback", json={})
        assert [each["name"] for each in back.json()["report"]] == ["x"]
        assert run(console, "x")["text"] == "20"
        restored = api.post("/v1/sessions/work/one/restore", json={"to": made["checkpoint"]["id"]})
        assert restored.status_code == 200, restored.text
        listed = api.get("/v1/sessions").json()
        assert listed["sessions"][0]["clients"] == 2
        assert listed["why_not"] is None
    with attach(server, "work/one") as late:
        assert heard(late, "ExecuteMessage")["code"].startswith("x = 20")  # type: ignore[attr-defined]
    assert api.delete("/v1/sessions/work/one").json() == {"id": "work/one"}
    assert api.get("/v1/sessions").json()["sessions"] == []
    head = store.head("session/work/one")
    assert head is not None
    assert head.reason == "stopped"
    started(api, "work/one")
    with attach(server, "work/one") as console:
        assert run(console, "x")["text"] == "20"


def test_input_and_interrupt(server: Server, api: httpx.Client) -> None:
    started(api, "asks")
    with attach(server, "asks") as console:
        say(console, "ExecuteMessage", execution_id=0, code="input('name? ') + '!'")
        question = heard(console, "InputMessage")
        assert question["prompt"] == "name? "
        say(console, "InputResponseMessage", request_id=question["request_id"], text="me")
        assert heard(console, "ResultMessage")["text"] == "'me!'"
        say(
            console,
            "ExecuteMessage",
            execution_id=0,
            code="print('on'); import time\nwhile True: time.sleep(0.01)",
        )
        assert str(heard(console, "OutputMessage")["text"]).startswith("on")
        assert api.post("/v1/sessions/asks/interrupt", json={}).json() == {"interrupted": True}
        error = heard(console, "ResultMessage")["error"]
        assert error["error_type"] == "KeyboardInterrupt"  # type: ignore[index]


def test_what_cannot_be_is_said_in_words(server: Server, api: httpx.Client, store: Store) -> None:
    for method, path in (("POST", "checkpoint"), ("POST", "rollback"), ("DELETE", "")):
        answer = api.request(method, f"/v1/sessions/nothing/{path}".rstrip("/"))
        assert answer.status_code == 404
        assert answer.json()["error"]["hint"]
    assert api.post("/v1/sessions", json={"name": "a b"}).status_code == 422
    with attach(server, "nothing") as console, pytest.raises(ConnectionClosed) as closed:
        console.recv(timeout=30)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4004
    started(api, "strict")
    for wrong in ("no json", '{"type": "ShutdownMessage"}', '{"type": "Unknown"}'):
        with attach(server, "strict") as console:
            console.send(wrong)
            with pytest.raises(ConnectionClosed) as closed:
                console.recv(timeout=30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003
    file = api.post("/v1/sessions/strict/restore", json={"to": "/etc/passwd"})
    assert file.status_code == 404
    with store.lease("session/taken", owner="somebody else"):
        taken = api.post("/v1/sessions", json={"name": "taken"})
        assert taken.status_code == 409
        assert "somebody else" in taken.json()["error"]["message"]


def test_a_server_that_stops_saves_what_it_runs(
    server: Server, api: httpx.Client, store: Store
) -> None:
    started(api, "kept")
    with attach(server, "kept") as console:
        run(console, "x = 'kept'")
    code, errors = server.stop(15)
    assert (code, "not checkpointed" in errors) == (0, False)
    head = store.head("session/kept")
    assert head is not None
    assert head.reason == "the server stopped"
    assert store.owner("session/kept") is None


def test_they_can_be_turned_off(start: Starter) -> None:
    server = start("--engine", "process", "--sessions", "off")
    with server.client(server.token) as client:
        assert "--sessions on" in client.get("/v1/sessions").json()["why_not"]
        refused = client.post("/v1/sessions", json={"name": "x"})
        assert refused.status_code == 501
        assert "--sessions on" in refused.json()["error"]["hint"]


def test_what_nobody_types_into_is_put_away(start: Starter, store: Store) -> None:
    """Frozen and ended, with a word to whoever still listens; and it comes back as it was."""
    server = start("--engine", "process", "--session-idle-timeout", "3")
    with server.client(server.token) as api:
        api.timeout = httpx.Timeout(60)
        assert api.get("/v1/sessions").json()["idle_timeout"] == 3
        started(api, "idle")
        with attach(server, "idle") as console:
            # Busy for longer than it may be idle: that is not idle.
            assert run(console, "import time; time.sleep(5); x = 'kept'; x")["text"] == "'kept'"
            with pytest.raises(ConnectionClosed) as closed:
                heard(console, "nothing of this kind is ever said")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4004
        assert "nothing was typed" in closed.value.rcvd.reason
        assert api.get("/v1/sessions").json()["sessions"] == []
        head = store.head("session/idle")
        assert head is not None
        assert head.reason == "idle"
        assert store.owner("session/idle") is None
        started(api, "idle")
        with attach(server, "idle") as console:
            assert run(console, "x")["text"] == "'kept'"


def test_no_file_of_the_server_is_restored(
    server: Server, api: httpx.Client, tmp_path: Path
) -> None:
    """Neither by a request nor by a message of the console."""
    kept = tmp_path / "kept.holdfast"
    with sync.Session("elsewhere", store="memory://") as other:
        other.execute("secret = 'of the server'")
        other.checkpoint()
        other.export(kept)
    started(api, "visited")
    refused = api.post("/v1/sessions/visited/restore", json={"to": str(kept), "trust": True})
    assert (refused.status_code, refused.json()["error"]["kind"]) == (404, "not_found")
    with attach(server, "visited") as console:
        fields = {"request_id": 5, "checkpoint_id": str(kept), "trust": True}
        say(console, "RestoreMessage", **fields)
        told = heard(console, "ErrorMessage")
        assert (told["error_type"], told["request_id"]) == ("not_found", 5)
        result = run(console, "'secret' in globals()")
        assert result["text"] == "False"
