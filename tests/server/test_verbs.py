"""The verbs over HTTP, and their description."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route
from tests.server.conftest import Server, Starter, add
from tests.server.sandbox_client import created

from holdfast import Session
from holdfast.bundle.heads import bind
from holdfast.model.subject import Subject
from holdfast.server.app import DESCRIBED, create_app
from holdfast.server.openapi import describe
from holdfast.store import Store, open_store


@pytest.fixture
def client(start: Starter) -> Iterator[httpx.Client]:
    server = start("--engine", "process")
    with server.client(server.token) as opened:
        yield opened


def test_the_verbs(client: httpx.Client, store: Store) -> None:
    first = add(store, "state/a", content=b"one" * 1000)
    second = add(store, "state/a", content=b"two" * 1000)
    changed = client.get("/v1/diff", params={"before": first, "after": second}).json()
    assert [(each["name"], each["change"]) for each in changed["parts"]] == [("content", "changed")]
    back = client.post("/v1/subjects/state/a/rollback").json()["checkpoint"]
    assert back["rollback_of"] == first
    assert client.post("/v1/subjects/state/a/undo").json()["move"]["after"] == second
    moved = client.post(f"/v1/checkpoints/{first}/restore").json()
    assert moved["checkpoint"]["id"] == first
    head = store.head("state/a")
    assert head is not None
    assert head.id == first
    copy = client.post(f"/v1/checkpoints/{first}/fork", json={"name": "b/c"}).json()
    assert copy["checkpoint"]["subject"] == "state/b/c"
    again = client.post(f"/v1/checkpoints/{first}/fork", json={"name": "b/c"})
    assert (again.status_code, again.json()["error"]["kind"]) == (409, "conflict")
    assert client.post(f"/v1/checkpoints/{first}/pin").json()["checkpoint"]["pinned"]
    assert not client.post(f"/v1/checkpoints/{first}/unpin").json()["checkpoint"]["pinned"]
    tagged = client.post(f"/v1/checkpoints/{first}/tags", json={"name": "good", "value": "1"})
    assert tagged.json()["checkpoint"]["tags"] == {"good": "1"}
    assert client.post("/v1/verify", json={"deep": True}).json()["ok"]
    plan = client.post("/v1/prune", json={"keep_last": 1, "dry_run": True}).json()
    assert plan["dry_run"]
    assert plan["removed"]
    gone = client.delete(f"/v1/checkpoints/{second}").json()["checkpoints"]
    assert [each["id"] for each in gone] == [second]
    assert client.delete(f"/v1/checkpoints/{second}").status_code == 404
    for body in (b"{", b"[]", b'{"trust": 1}', b'{"unknown": 1}', b"x" * 100_000):
        assert client.post(f"/v1/checkpoints/{first}/restore", content=body).status_code == 422
    assert client.get("/v1/diff").status_code == 422


async def test_sandboxes_and_metrics(start: Starter) -> None:
    server = start("--engine", "process")
    wire = await created(server, enable_checkpoint=True, name="mine")
    with server.client(server.token) as client:
        [found] = client.get("/v1/sandboxes").json()["sandboxes"]
        assert (found["id"], found["name"]) == (wire.identity[0], "mine")
        assert found["attached"]
        assert "token" not in str(found)
        frozen = client.post(
            f"/v1/sandboxes/{found['id']}/checkpoint", json={"reason": "why"}
        ).json()
        assert frozen["checkpoint"]["reason"] == "why"
        numbers = client.get("/metrics").text
        assert "\nholdfast_sandboxes 1\n" in numbers
        assert "\nholdfast_sandbox_created_total 1\n" in numbers
        assert 'holdfast_checkpoints{kind="sandbox"} 1\n' in numbers
        assert client.delete(f"/v1/sandboxes/{found['id']}").json() == {"id": found["id"]}
        assert await wire.rest() == (["KILLING", "DELETING", "DELETED", "KILLED"], 1000)
        assert client.delete(f"/v1/sandboxes/{found['id']}").status_code == 404
    with server.client() as nobody:
        assert nobody.get("/metrics").status_code == 401


def test_the_description_is_valid_and_whole(client: httpx.Client) -> None:
    import jsonschema  # takes seconds, which no other test should wait for

    document = client.get("/v1/openapi.json").json()
    assert document == json.loads(json.dumps(describe(DESCRIBED)))
    told = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    routes = create_app(open_store("memory://"), None).routes
    there = {
        (method, each.path.replace(":path}", "}"))
        for each in routes
        if isinstance(each, Route) and each.path.startswith("/v1/")
        for method in (each.methods or set()) - {"HEAD"}
        if "/ports/" not in each.path  # whatever the program inside answers
    }
    assert told == there - {("GET", "/v1/openapi.json")}
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(names) == len(set(names))
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.fixture
async def stocked(start: Starter, store: Store) -> Server:
    """A server on a store with every kind in it, made by what makes them."""
    for number in range(3):
        add(store, "state/a", content=bytes([number]) * 5000)
    server = start("--engine", "process")
    async with Session("s", store=store) as session:
        await session.execute("x = 1")
        await session.checkpoint()
    wire = await created(server, enable_checkpoint=True)
    await wire.send(action="checkpoint")
    await wire.rest()
    members = ["state/a", "session/s", f"sandbox/{wire.identity[0]}"]
    bind(store, Subject.parse("bundle/b"), [Subject.parse(each) for each in members], "together")
    return server


# Looking is done at what there is as often as at what there is not, and nothing is really pruned.
HOOKS = """
import itertools, os, schemathesis
from schemathesis.core import NOT_SET

stock = itertools.cycle([*os.environ["STOCKED"].split(), None])

@schemathesis.hook
def before_call(context, case, kwargs):
    if case.operation.definition.raw["operationId"] == "prune":
        body = {} if case.body is NOT_SET else case.body
        case.body = {**body, "dry_run": True} if isinstance(body, dict) else body
    if case.method == "GET" and (found := next(stock)) is not None:
        subject, checkpoint = found.split(":")
        given = case.path_parameters or {}
        kind, name = subject.split("/", 1)
        known = {"kind": kind, "name": name, "subject": subject, "id": checkpoint}
        case.path_parameters = {each: known.get(each, given[each]) for each in given}
"""


@pytest.mark.timeout(400)
def test_schemathesis_finds_nothing(stocked: Server, store: Store, tmp_path: Path) -> None:
    """Answers are as described, whatever is asked, and nothing makes the server fail."""
    heads = [each.head for each in store.subjects() if each.head is not None]
    assert {each.subject.kind for each in heads} == {"state", "session", "sandbox", "bundle"}
    (tmp_path / "hooks.py").write_text(HOOKS)
    stock = " ".join(f"{each.subject}:{each.id}" for each in heads)
    hooked = {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(tmp_path), "STOCKED": stock}
    checks = "not_a_server_error,status_code_conformance,content_type_conformance"
    checks += ",response_schema_conformance,response_headers_conformance"
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("schemathesis"), "run"),
            f"{stocked.address}/v1/openapi.json",
            *("--header", f"Authorization: Bearer {stocked.token}"),
            *("--checks", checks, "--max-examples", "6", "--seed", "1"),
            *("--phases", "coverage,fuzzing"),
            *("--exclude-operation-id", "makeTemplate"),  # runs code; test_templates.py has it
            *("--exclude-operation-id", "drill"),  # takes long; tests/drill has it
            *("--suppress-health-check", "all", "--warnings", "off"),
        ],
        cwd=tmp_path,
        env={**os.environ, **hooked, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    tested = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert tested is not None, done.stdout[-2000:]
    assert int(tested[1]) == int(tested[2]) > 100
    assert {each.id for each in heads} <= {each.id for each in store.list()}  # nothing was pruned
