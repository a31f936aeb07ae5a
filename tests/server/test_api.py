"""The JSON under /v1."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.server.conftest import Server, Starter, add

from holdfast.store import Store


@pytest.fixture
def api(start: Starter) -> Iterator[httpx.Client]:
    server = start()
    with server.client(server.token) as client:
        yield client


def test_subjects(api: httpx.Client, store: Store) -> None:
    add(store, "state/one", content=b"x" * 10)
    newest = add(store, "session/two/three")
    two, one = api.get("/v1/subjects").json()["subjects"]
    assert (one["subject"], one["count"], one["size_bytes"]) == ("state/one", 1, 10)
    assert (two["kind"], two["name"]) == ("session", "two/three")
    assert two["head"]["id"] == newest


def test_checkpoints(api: httpx.Client, store: Store) -> None:
    ids = [add(store, "state/one", f"step {number}") for number in range(3)]
    other = add(store, "session/two")

    def found(**query: str) -> list[str]:
        answer = api.get("/v1/checkpoints", params=query)
        assert answer.status_code == 200
        return [each["id"] for each in answer.json()["checkpoints"]]

    assert found() == [other, *ids[::-1]]
    assert found(subject="state/one") == ids[::-1]
    assert found(kind="session") == [other]
    assert found(limit="2") == [other, ids[2]]
    assert found(subject="", kind="", limit="") == found()


def test_one_checkpoint(api: httpx.Client, store: Store) -> None:
    made = add(store, "state/one")
    document = api.get(f"/v1/checkpoints/{made}").json()
    assert document["checkpoint"]["id"] == made
    assert document["parts"][0]["name"] == "content"
    assert document["report"] is None
    short = document["checkpoint"]["short"]
    assert api.get(f"/v1/checkpoints/{short}").json() == document


def test_lineage(api: httpx.Client, store: Store) -> None:
    first = add(store, "state/a/b")
    store.fork(first, "copy")
    document = api.get("/v1/subjects/state/a/b/lineage").json()
    assert document["head"] == first
    assert [each["subject"] for each in document["forks"]] == ["state/copy"]
    assert document["moves"][0]["verb"] == "checkpoint"


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/v1/checkpoints/nothing", 404, "not_found"),
        ("/v1/subjects/state/nothing/lineage", 404, "not_found"),
        ("/v1/subjects/nokind/x/lineage", 422, "bad_input"),
        ("/v1/checkpoints?subject=state/nothing", 404, "not_found"),
        ("/v1/checkpoints?limit=many", 400, "usage"),
        ("/v1/checkpoints?limit=0", 400, "usage"),
        ("/v1/checkpoints?limit=9999999", 400, "usage"),
        (f"/v1/checkpoints?limit={'9' * 5000}", 400, "usage"),
        ("/v1/checkpoints?kind=nokind", 422, "bad_input"),
        ("/v1/checkpoints?subject=x", 422, "bad_input"),
        ("/v1/nothing", 404, "not_found"),
    ],
)
def test_errors(empty: Server, path: str, status: int, kind: str) -> None:
    for accept in ("*/*", "text/html"):
        with empty.client(empty.token, Accept=accept) as client:
            answer = client.get(path)
        assert answer.status_code == status
        error = answer.json()["error"]
        assert error.keys() == {"kind", "message", "hint", "request_id"}
        assert error["request_id"] == answer.headers["X-Request-Id"]
        assert error["kind"] == kind


def test_only_get_and_head(empty: Server) -> None:
    with empty.client(empty.token) as client:
        answer = client.post("/v1/subjects")
        heads = [client.head(path).status_code for path in ("/v1/subjects", "/status")]
    assert answer.status_code == 405
    assert answer.json()["error"]["kind"] == "unsupported"
    assert heads == [200, 200]
