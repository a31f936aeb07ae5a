"""Archives over HTTP: between servers, in pieces, and when somebody leaves in the middle."""

from __future__ import annotations

import hashlib
import io
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tests.server.conftest import Server, Starter, add

from holdfast.store import Store, open_store
from holdfast.testing.waiting import eventually

MEDIA_TYPE = "application/octet-stream"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archives")


@pytest.fixture(scope="module")
def start(folder: Path) -> Iterator[Starter]:
    """Servers for all tests here, which therefore have subjects of their own."""
    with Starter(XDG_CONFIG_HOME=str(folder)) as starter:
        yield starter


@pytest.fixture(scope="module")
def served(start: Starter, folder: Path) -> Server:
    return start("--engine", "process", HOLDFAST_HOME=str(folder / "here"))


@pytest.fixture(scope="module")
def client(served: Server) -> Iterator[httpx.Client]:
    with served.client(served.token) as opened:
        yield opened


@pytest.fixture
def store(served: Server, folder: Path) -> Iterator[Store]:
    """The store of that server."""
    with open_store(folder / "here/store", environ={"HOLDFAST_HOME": str(folder / "here")}) as own:
        yield own


@pytest.fixture(scope="module")
def elsewhere(start: Starter, folder: Path) -> Iterator[httpx.Client]:
    """Another server, with another store and another key."""
    server = start("--engine", "process", HOLDFAST_HOME=str(folder / "elsewhere"))
    with server.client(server.token) as opened:
        yield opened


def noise(size: int) -> bytes:
    return hashlib.shake_256(b"noise").digest(size)


def test_from_one_server_to_another(
    client: httpx.Client, elsewhere: httpx.Client, store: Store, folder: Path
) -> None:
    content = noise(3_000_000)
    first = add(store, "state/a", "first")
    second = add(store, "state/a", "second", content)
    with client.stream("GET", f"/v1/checkpoints/{second}/export?ancestors=true") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == MEDIA_TYPE
        short = store.resolve(second).short
        assert answer.headers["content-disposition"] == f'attachment; filename="{short}.holdfast"'
        tried = elsewhere.post("/v1/import?dry_run=true", content=answer.iter_bytes(70_000))
    assert [one["id"] for one in tried.json()["imported"]] == [first, second]
    assert elsewhere.get("/v1/checkpoints?subject=state/a").status_code == 404
    with client.stream("GET", f"/v1/checkpoints/{short}/export?ancestors=true") as answer:
        brought = elsewhere.post("/v1/import", content=answer.iter_bytes(70_000)).json()
    assert [one["id"] for one in brought["imported"]] == [first, second]
    assert brought["checkpoint"]["foreign"]
    refused = elsewhere.post(f"/v1/checkpoints/{second}/restore")
    assert refused.status_code == 403
    with open_store(folder / "elsewhere/store") as there:
        assert there.read(second, "content", trust=True) == content
    alone = client.get(f"/v1/checkpoints/{second}/export").content
    again = elsewhere.post("/v1/import", content=alone).json()
    assert (again["imported"], [one["id"] for one in again["already"]]) == ([], [second])


def test_what_is_vouched_for_may_be_restored(
    client: httpx.Client, elsewhere: httpx.Client, store: Store
) -> None:
    made = add(store, "state/vouched")
    archive = client.get(f"/v1/checkpoints/{made}/export").content
    brought = elsewhere.post("/v1/import?trust=true", content=archive).json()
    assert not brought["checkpoint"]["foreign"]
    assert elsewhere.post(f"/v1/checkpoints/{made}/restore").status_code == 200


@pytest.mark.parametrize(
    ("spoil", "status", "kind"),
    [
        (lambda archive: archive[: len(archive) // 2], 422, "bad_input"),
        (lambda archive: archive[:-1], 422, "bad_input"),
        (lambda archive: archive[:200] + b"X" + archive[201:], 422, "bad_input"),
        (lambda archive: archive + b"X", 422, "bad_input"),
        (lambda archive: b"", 422, "bad_input"),
        (lambda archive: b"a letter", 422, "bad_input"),
    ],
)
def test_what_is_no_whole_archive_leaves_nothing(
    client: httpx.Client, store: Store, spoil: Callable[[bytes], bytes], status: int, kind: str
) -> None:
    stranger = open_store("memory://")
    made = add(stranger, "state/stranger", content=noise(10_000))
    out = io.BytesIO()
    stranger.export(made, out)
    before = store.list()
    answer = client.post("/v1/import", content=spoil(out.getvalue()))
    assert (answer.status_code, answer.json()["error"]["kind"]) == (status, kind)
    assert store.list() == before


def test_what_cannot_be_exported_is_an_error_like_any_other(
    client: httpx.Client, store: Store
) -> None:
    missing = client.get("/v1/checkpoints/deadbeef/export")
    assert (missing.status_code, missing.json()["error"]["kind"]) == (404, "not_found")
    made = add(store, "state/whole")
    odd = client.get(f"/v1/checkpoints/{made}/export?ancestors=perhaps")
    assert (odd.status_code, odd.json()["error"]["kind"]) == (400, "usage")


def test_both_want_the_token(served: Server, store: Store) -> None:
    made = add(store, "state/guarded")
    with served.client() as nobody:
        assert nobody.get(f"/v1/checkpoints/{made}/export").status_code == 401
        assert nobody.post("/v1/import", content=b"x").status_code == 401


def test_a_client_that_leaves_is_noticed(
    served: Server, client: httpx.Client, store: Store
) -> None:
    """Neither a half sent archive nor a half read one keeps the server from anything."""
    made = add(store, "state/large", content=noise(30_000_000))
    host, _, port = served.address.removeprefix("http://").partition(":")
    for _ in range(6):  # more than there may be at once
        with socket.create_connection((host, int(port))) as wire:
            head = f"GET /v1/checkpoints/{made}/export HTTP/1.1\r\nHost: {host}:{port}\r\n"
            wire.sendall(f"{head}Authorization: Bearer {served.token}\r\n\r\n".encode())
            assert wire.recv(15).startswith(b"HTTP/1.1 200")
        with socket.create_connection((host, int(port))) as wire:
            head = f"POST /v1/import HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 1000000\r\n"
            wire.sendall(f"{head}Authorization: Bearer {served.token}\r\n\r\n".encode())
            wire.sendall(b"HOLDFAST-ARCHIVE")
    eventually(lambda: store._ledger.backend.oldest_hold() is None, "nobody reads any more")
    archive = client.get(f"/v1/checkpoints/{made}/export").content
    assert len(archive) > 30_000_000
    assert client.post("/v1/import", content=archive).json()["imported"] == []
    assert store.verify(deep=True).ok
