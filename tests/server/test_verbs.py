"""The verbs over HTTP, and their description."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route
from tests.server.conftest import Server, Starter, add
from tests.server.sandbox_client import created

from holdfast import Session
from holdfast.bundle.heads import bind
from holdfast.model.subject import KINDS, Subject
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


@dataclass(frozen=True)
class Stocked:
    """A server with something of everything, a sandbox that runs there, and another one and some
    checkpoints that nobody will miss."""

    server: Server
    live: str
    doomed: str
    spare: tuple[str, ...]


@pytest.fixture
async def stocked(start: Starter, store: Store) -> Stocked:
    """A server on a store with every kind in it, made by what makes them, as far as no container
    engine is needed."""
    for number in range(3):
        add(store, "state/a", content=bytes([number]) * 5000)
    with store.draft("container/default/tc", reason="drain") as draft:
        draft.put("memory/pages-1.img", bytes(range(256)) * 64, split="pages")
        draft.put("files/upper", b"", split="content")
        draft.put("config", {"id": "tc"}, split="structure")
        draft.commit()
    server = start("--engine", "process")
    async with Session("s", store=store) as session:
        await session.execute("x = 1")
        await session.checkpoint()
    wire = await created(server, enable_checkpoint=True)
    await wire.send(action="checkpoint")
    await wire.rest()
    members = ["state/a", "session/s", f"sandbox/{wire.identity[0]}"]
    bind(store, Subject.parse("bundle/b"), [Subject.parse(each) for each in members], "together")
    live = await created(server, enable_checkpoint=True)
    for _ in range(2):  # so that there is somewhere to go back to
        await live.send(action="checkpoint", leave_running=True)
        await live.until("CHECKPOINTED")
    await live._socket.close()  # who is attached goes back itself
    spare = tuple(add(store, "state/spare", content=bytes([number])) for number in range(3))
    doomed = await created(server, enable_checkpoint=True)
    await doomed._socket.close()
    return Stocked(server, live.identity[0], doomed.identity[0], spare)


# What is there is met as often as what is not, by whatever leaves it there. Nothing is pruned, only
# what is to spare is deleted or killed (ids that answers tell are used again), and nobody waits for
# more than one copy.
MEETING = (
    *("restore", "fork", "pin", "unpin", "tag", "rollback", "undo", "beginSandbox"),
    *("showSandbox", "checkpointSandbox", "forkSandbox", "rollbackSandbox"),
    *("snapshotSandbox", "sandboxFiles"),
)
HOOKS = """
import itertools, os, schemathesis
from schemathesis.core import NOT_SET

stocked = os.environ["STOCKED"].split()
stock = itertools.cycle([*stocked, None])
boxes = itertools.cycle([*(each for each in stocked if each.startswith("sandbox/")), None])
meeting = os.environ["MEETING"].split()
paths = itertools.cycle(["/root", "/root/a", None])
spare = itertools.cycle([*os.environ["SPARE"].split(), "never-there"])
doomed = itertools.cycle([os.environ["DOOMED"], "never-there"])

@schemathesis.hook
def before_call(context, case, kwargs):
    operation = case.operation.definition.raw["operationId"]
    body = {} if case.body is NOT_SET else case.body
    if operation == "delete":
        case.path_parameters = {"id": next(spare)}
    if operation == "killSandbox":
        case.path_parameters = {"id": next(doomed)}
    if operation == "prune" and isinstance(body, dict):
        case.body = {**body, "dry_run": True}
    if operation == "forkSandbox" and isinstance(body, dict) and isinstance(body.get("count"), int):
        case.body = {**body, "count": min(body["count"], 1)}
    if operation == "sandboxFiles" and isinstance(body, dict) and (path := next(paths)) is not None:
        case.body = {**body, "path": path}
    shelf = boxes if operation == "beginSandbox" else stock
    if (case.method == "GET" or operation in meeting) and (found := next(shelf)) is not None:
        subject, checkpoint = found.split(":")
        given = case.path_parameters or {}
        kind, name = subject.split("/", 1)
        known = {"kind": kind, "name": name, "subject": subject, "id": checkpoint}
        if case.path.startswith("/v1/sandboxes/"):
            known["id"] = os.environ["LIVE"]
        case.path_parameters = {each: known.get(each, given[each]) for each in given}

@schemathesis.hook
def after_call(context, case, response):
    with open("answers", "a") as file:
        print(case.operation.definition.raw["operationId"], response.status_code, file=file)
"""


@pytest.mark.timeout(400)
def test_schemathesis_finds_nothing(stocked: Stocked, store: Store, tmp_path: Path) -> None:
    """Answers are as described, whatever is asked, and nothing makes the server fail."""
    heads = [each.head for each in store.subjects() if each.head is not None]
    assert {each.subject.kind for each in heads} == set(KINDS)
    (tmp_path / "hooks.py").write_text(HOOKS)
    stock = " ".join(f"{each.subject}:{each.id}" for each in heads)
    hooked = {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(tmp_path), "STOCKED": stock}
    hooked |= {"MEETING": " ".join(MEETING), "SPARE": " ".join(stocked.spare)}
    hooked |= {"LIVE": stocked.live, "DOOMED": stocked.doomed}
    checks = "not_a_server_error,status_code_conformance,content_type_conformance"
    checks += ",response_schema_conformance,response_headers_conformance"
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("schemathesis"), "run"),
            f"{stocked.server.address}/v1/openapi.json",
            *("--header", f"Authorization: Bearer {stocked.server.token}"),
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
    missed = {each.id for each in heads} - {each.id for each in store.list()}
    assert missed <= {*stocked.spare}  # nothing was pruned
    answers = {*(tmp_path / "answers").read_text().splitlines()}
    assert {f"{each} 200" for each in (*MEETING, "delete", "killSandbox")} <= answers
    with stocked.server.client(stocked.server.token) as client:
        assert client.get(f"/v1/sandboxes/{stocked.live}").json()["id"] == stocked.live
