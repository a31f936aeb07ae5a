"""Events: what the server tells those who watch (spec/server-v1.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.conftest import PATIENCE, Server, Starter, add
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from holdfast.state import StateManager
from holdfast.store import Store
from holdfast.view import verified


@pytest.fixture
def server(start: Starter) -> Server:
    return start("--engine", "process")


def watch(server: Server, path: str = "/v1/events", **options: object) -> ClientConnection:
    url = server.address.replace("http", "ws") + path
    protocols = ["holdfast.v1", f"holdfast.token.{server.token}"]
    return connect(url, subprotocols=protocols, open_timeout=PATIENCE, **options)  # type: ignore[arg-type]


@pytest.fixture
def watched(server: Server) -> Iterator[ClientConnection]:
    with watch(server) as connection:
        yield connection


def heard(connection: ClientConnection) -> dict[str, object]:
    event: dict[str, object] = json.loads(connection.recv(timeout=30))
    return event


def test_it_begins_with_where_the_log_is(server: Server, store: Store) -> None:
    add(store, "state/a")
    with watch(server) as connection:
        assert heard(connection) == {
            "event": "hello",
            "sequence": store.sequence,
            "running": {"sessions": [], "sandboxes": []},
            "proven": {"verified": None, "drilled": None, "drilling": False},
        }


def test_what_others_do_is_told_to_everybody(
    server: Server, store: Store, watched: ClientConnection
) -> None:
    assert heard(watched)["sequence"] == 0
    made = add(store, "state/a", "first")
    with watch(server) as late:
        assert heard(late)["event"] == "hello"
        told = heard(watched)
        assert (told["event"], told["since"], told["complete"]) == ("change", 0, True)
        (subject,) = told["subjects"]  # type: ignore[misc]
        assert (subject["subject"], subject["count"], subject["head"]["id"]) == ("state/a", 1, made)
        assert [each["id"] for each in told["checkpoints"]] == [made]  # type: ignore[attr-defined]
        assert [each["verb"] for each in told["moves"]] == ["checkpoint"]  # type: ignore[attr-defined]
        store.delete(made)
        for connection in (watched, late):
            gone = heard(connection)
            while gone["event"] != "change" or not gone["gone"]:
                gone = heard(connection)
            assert gone["gone"] == ["state/a"]
            assert gone["removed"] == [made]


def test_what_runs_here_is_told(server: Server, watched: ClientConnection) -> None:
    heard(watched)
    with watch(server, "/create") as sandbox:
        sandbox.send("{}")
        while (told := heard(watched))["event"] != "running":
            pass
        (found,) = told["running"]["sandboxes"]  # type: ignore[index]
        assert found["engine"] == "process"
        assert "idle_seconds" not in found


def test_what_was_proven_is_told_whoever_did_it(
    server: Server, store: Store, watched: ClientConnection
) -> None:
    """By this server, and by somebody else on the same home."""

    def proven(since: dict[str, Any]) -> dict[str, Any]:
        while (told := heard(watched)).get("proven", since) == since:
            pass
        found: dict[str, Any] = told["proven"]  # type: ignore[assignment]
        return found

    nothing = heard(watched)["proven"]
    with server.client(server.token) as api:
        assert api.post("/v1/verify", json={}).status_code == 200
        here = proven(nothing)  # type: ignore[arg-type]
        assert here == {"verified": here["verified"], "drilled": None, "drilling": False}
        verified.note(store.url, store.verify())
        elsewhere = proven(here)
        assert elsewhere["verified"] > here["verified"]
        StateManager("real", store=store).checkpoint("to be drilled")
        assert api.post("/v1/drills", json={}).json()["drills"][0]["ok"]
    last = proven(elsewhere)
    while last["drilling"]:  # it may have been seen under way
        last = proven(last)
    assert last == {**elsewhere, "drilled": last["drilled"]}
    assert last["drilled"] > elsewhere["verified"]


def test_only_with_the_token_and_from_our_own_page(server: Server) -> None:
    url = server.address.replace("http", "ws") + "/v1/events"
    with pytest.raises(InvalidStatus):
        connect(url, open_timeout=PATIENCE)
    with pytest.raises(InvalidStatus):
        watch(server, origin="http://elsewhere.example")


def test_a_server_that_stops_hangs_up(server: Server, watched: ClientConnection) -> None:
    heard(watched)
    code, _ = server.stop(15)
    assert code == 0
    with pytest.raises(ConnectionClosed) as closed:
        watched.recv(timeout=30)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1012
