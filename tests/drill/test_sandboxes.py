"""Drills of sandboxes: brought back for real, by the engine that froze them."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.conftest import Server, Starter

from holdfast import Sandbox, StateManager, open_store
from holdfast.bundle import Bundle
from holdfast.drill import drill
from holdfast.drill.choosing import choose
from holdfast.model.checkpoint import Checkpoint
from holdfast.server.openapi import SCHEMAS
from holdfast.store.store import Store
from holdfast.testing.waiting import eventually

pytestmark = pytest.mark.timeout(300)
ENGINES = ("process", "gvisor")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def starter(home: Path) -> Iterator[Starter]:
    with Starter(HOLDFAST_HOME=str(home), XDG_CONFIG_HOME=str(home)) as made:
        yield made


@pytest.fixture
def store(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    with open_store() as opened:
        yield opened


async def frozen(server: Server, store: Store, code: str, *, running: str = "") -> Checkpoint:
    """The checkpoint of a sandbox that has ended."""
    async with await Sandbox.create(
        server.address, token=server.token, enable_checkpoint=True
    ) as sandbox:
        await (await sandbox.exec("bash", code)).wait()
        if running:
            await sandbox.exec("bash", running)
        made = await sandbox.checkpoint("to be drilled", during_execution=bool(running))
    return store.resolve(made.id)


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_sandbox_comes_back_the_same(
    starter: Starter, store: Store, home: Path, engine: str
) -> None:
    server = starter("--engine", engine)
    script = "mkdir /root/d; seq 1000 > /root/d/x; ln -s x /root/d/y; chmod 600 /root/d/x"
    made = await frozen(server, store, script)
    before, boxes = store.count(), set((home / "run").iterdir())
    done = await drill(store, made)
    assert (done.ok, done.tried, done.problems, done.notes) == (True, True, (), ())
    assert done.items >= 3
    assert store.count() == before
    assert set((home / "run").iterdir()) == boxes  # nothing stays
    if engine == "gvisor":
        counting = "i=0; while :; do i=$((i+1)); echo $i > /root/n; sleep .05; done"
        lively = await drill(store, await frozen(server, store, "echo > /root/n", running=counting))
        assert (lively.ok, lively.tried) == (True, True), lively.problems
    # A bundle is proved by its members, each out of the bundle alone.
    plan = StateManager(f"plan-{engine}", store=store)
    async with await Sandbox.create(
        server.address, token=server.token, enable_checkpoint=True
    ) as sandbox:
        bundle = await Bundle(f"bound-{engine}", [plan, sandbox]).checkpoint()
        await sandbox.kill()
    together = await drill(store, bundle)
    assert (together.ok, together.tried) == (True, True), together.problems


async def test_a_sandbox_that_lies_about_its_files_is_found(starter: Starter, store: Store) -> None:
    """Every byte is as it was signed, and yet it does not come back."""
    made = await frozen(starter("--engine", "process"), store, "echo 1 > /root/x")
    config = store.value(made, "config")
    bad = io.BytesIO()
    with tarfile.open(fileobj=bad, mode="w") as archive:
        info = tarfile.TarInfo("../../outside")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    with store.draft(made.subject, reason="planted") as draft:
        draft.put("config", config, split="structure")
        draft.put("environment", store.value(made, "environment"), split="structure")
        draft.put("files/upper", bad.getvalue(), split="content")
        planted = draft.commit()
    done = await drill(store, planted)
    assert not done.ok
    foreign = await drill(store, made)
    assert foreign.ok


async def test_what_cannot_be_tried_here_is_only_read(starter: Starter, store: Store) -> None:
    made = await frozen(starter("--engine", "process"), store, "true")
    with store.draft(made.subject, reason="elsewhere") as draft:
        for name in ("files/", "config"):
            draft.keep_from(made, prefix=name, under=name)
        environment = {**store.value(made, "environment"), "machine": "s390x"}
        draft.put("environment", environment, split="structure")
        other = draft.commit()
    done = await drill(store, other)
    assert (done.ok, done.tried) == (True, False)
    assert "s390x" in done.notes[0]


def test_the_server_drills_by_itself(starter: Starter, store: Store) -> None:
    for name in ("a", "b"):
        state = StateManager(name, store=store)
        state.set_state("x", name * 100_000)
        state.checkpoint()
    server = starter(
        *("--engine", "process", "--drill-every", "0.0005"),
        *("--drill-most", "5", "--drill-subjects", "state/a, state/b"),
    )
    with server.client(server.token) as api:

        def drilled() -> dict[str, bool]:
            told = api.get("/v1/drills").json()
            return {e["subject"]: e["ok"] for e in told["drills"] if e["subject"] < "state/c"}

        eventually(lambda: {"state/a", "state/b"} <= drilled().keys(), "both were drilled")
        assert all(drilled()[f"state/{name}"] for name in "ab")
        told = api.get("/v1/drills").json()
        assert (told["most"], told["subjects"]) == (5, ["state/a", "state/b"])
        numbers = api.get("/metrics").text
        assert "holdfast_drills_done_total" in numbers
        assert "holdfast_drills_failing" in numbers
        assert api.post("/v1/drills", json={"most": 0}).status_code == 422


def test_a_planted_corruption_shows_on_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jsonschema  # takes seconds, which no other test should wait for

    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    starter = Starter(HOLDFAST_HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path))
    with open_store(tmp_path / "store") as own:
        state = StateManager("doomed", store=own)
        state.set_state("x", os.urandom(3_000_000).hex())
        state.checkpoint()
    pack = max((tmp_path / "store/packs").glob("*.pack"), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)
    try:
        server = starter("--engine", "process")
        with server.client(server.token) as api:
            assert api.get("/v1/drills").json()["drills"] == []
            answer = api.post("/v1/drills", json={"subjects": ["state/*"]}).json()
            jsonschema.validate(answer, SCHEMAS["Drills"] | {"components": {"schemas": SCHEMAS}})
            told = answer["drills"]
            assert [(each["subject"], each["ok"]) for each in told] == [("state/doomed", False)]
            assert told[0]["problems"]
            assert "holdfast_drills_failing 1\n" in api.get("/metrics").text
            assert "holdfast_drills_failed_total 1\n" in api.get("/metrics").text
        _, errors = server.stop(15)
        assert "drill of" in errors
    finally:
        starter.end()


def test_which_are_due(store: Store) -> None:
    heads = [each.head for each in store.subjects() if each.head is not None]
    states = [each for each in heads if each.subject.kind == "state"]
    assert choose(heads, {}, patterns=["state/*"], most=100) == states
    assert len(choose(heads, {}, patterns=["*"], most=2)) == 2
    first, *others = states
    drilled = {str(first.subject): (first.id, "2026-01-01")}
    assert choose(states, drilled, patterns=["*"], most=100) == [*others, first]
    # A head that has moved on since was never drilled.
    moved = {str(first.subject): ("another", "2026-01-01")}
    for each in others:
        moved[str(each.subject)] = (each.id, "2025-01-01")
    assert choose(states, moved, patterns=["*"], most=1) == [first]
