"""Looking closer over HTTP: contents, differences, the store's health, the example."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.server.conftest import Server, Starter, add

from holdfast import StateManager
from holdfast.store import Store


@pytest.fixture
def server(start: Starter) -> Server:
    return start("--engine", "process")


@pytest.fixture
def api(server: Server) -> Iterator[httpx.Client]:
    with server.client(server.token) as client:
        client.timeout = httpx.Timeout(60)
        yield client


def test_a_state_and_its_changes(api: httpx.Client, store: Store) -> None:
    manager = StateManager("demo", store=store)
    manager.set_state("rows", 1)
    manager.checkpoint("one")
    manager.set_state("rows", 2)
    manager.checkpoint("two")
    content = api.get("/v1/checkpoints/state/demo/content")
    assert content.status_code == 404  # a reference with a slash is no part of an address
    head = store.head("state/demo")
    assert head is not None
    told = api.get(f"/v1/checkpoints/{head.id}/content").json()
    assert told["state"]["rows"] == 2
    assert (told["has_state"], told["variables"], told["files"]) == (True, None, None)
    diff = api.get("/v1/diff", params={"before": "state/demo~1", "after": "state/demo"}).json()
    assert [(each["path"], each["before"], each["after"]) for each in diff["values"]] == [
        ("state_info.rows", 1, 2)
    ]
    assert (diff["variables"], diff["more_values"]) == (None, 0)
    shown = api.get(f"/v1/checkpoints/{head.id}").json()
    assert shown["relatives"] == {head.parents[0]: store.resolve(head.parents[0]).short}


def test_the_health_of_a_store(api: httpx.Client, store: Store) -> None:
    empty = api.get("/v1/health").json()
    assert (empty["kinds"], empty["over_time"], empty["verified"]) == ([], [], None)
    for number in range(5):
        add(store, "state/a", content=b"the same" * 1000)
        add(store, "session/b", content=bytes([number]) * 5000)
    told = api.get("/v1/health").json()
    assert {each["kind"]: each["checkpoints"] for each in told["kinds"]} == {
        "state": 5,
        "session": 5,
    }
    growth = told["over_time"]
    assert [each["checkpoints"] for each in growth] == list(range(1, 11))
    assert growth[-1]["content_bytes"] == told["usage"]["content_bytes"] == 5 * 8000 + 5 * 5000
    assert growth[-1]["stored_bytes"] < growth[-1]["content_bytes"]
    assert api.post("/v1/verify", json={"deep": True}).json()["ok"]
    verified = api.get("/v1/health").json()["verified"]
    assert (verified["ok"], verified["deep"], verified["checkpoints"]) == (True, True, 10)


def test_the_example_is_made_once(api: httpx.Client, store: Store) -> None:
    made = api.post("/v1/example").json()
    assert made == {"subjects": ["session/example", "state/example"]}
    for subject in made["subjects"]:
        rows = store.list(subject)
        assert len(rows) >= 5
        assert any(each.rollback_of for each in rows)
    head = store.head("session/example")
    assert head is not None
    content = api.get(f"/v1/checkpoints/{head.id}/content").json()
    signal = next(each for each in content["variables"] if each["name"] == "signal")
    assert signal["array"]["shape"] == [4000]
    again = api.post("/v1/example")
    assert again.status_code == 409
    assert again.json()["error"]["hint"]
