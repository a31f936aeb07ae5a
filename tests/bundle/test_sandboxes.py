"""Bundles with sandboxes among their members: real servers, real engines, kills half way."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.server.conftest import Server, Starter

from holdfast import Sandbox, Session, StateManager, open_store, sync
from holdfast.bundle import Bundle, Inside
from holdfast.model.errors import BadInput, Conflict, HoldfastError, UsageError
from holdfast.store.store import Store
from holdfast.testing.waiting import eventually

pytestmark = pytest.mark.timeout(300)
ENGINES = ("process", "gvisor")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def servers(home: Path) -> Iterator[dict[str, Server]]:
    """One for each engine, on the same store."""
    with Starter(HOLDFAST_HOME=str(home), XDG_CONFIG_HOME=str(home)) as starter:
        yield {each: starter("--engine", each) for each in ENGINES}


@pytest.fixture(params=ENGINES)
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    return servers[str(request.param)]


@pytest.fixture
def store(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    with open_store() as opened:
        yield opened


async def said(sandbox: Sandbox, code: str) -> str:
    return str(await (await sandbox.exec("bash", code)).stdout.read_all())


async def created(server: Server) -> Sandbox:
    return await Sandbox.create(server.address, token=server.token, enable_checkpoint=True)


def heads(store: Store) -> dict[str, str]:
    return {str(each.subject): each.head.id for each in store.subjects() if each.head is not None}


async def test_a_state_a_session_and_a_sandbox(server: Server, store: Store) -> None:
    plan = StateManager(f"plan-{server.address[-5:]}", store=store)
    plan.set_state("step", 1)
    async with Session(store=store) as session, await created(server) as sandbox:
        await session.execute("x = 1\nimport random; random.seed(7)")
        await said(sandbox, "echo 1 > /root/x")
        reseed = Inside(session, "random.seed(99)")
        token = Inside(sandbox, "open('/root/token', 'w').write('new')")
        heard: list[str] = []
        bundle = Bundle(
            f"all-{server.address[-5:]}",
            [plan, session, sandbox],
            on_restore=[reseed, token, lambda checkpoint: heard.append(checkpoint.id)],
        )
        first = await bundle.checkpoint("all are 1", "one")
        names = [str(plan.session_id), str(session.subject), f"sandbox/{sandbox.sandbox_id}"]
        moves = [store.history(name)[-1] for name in (names[1], names[2], str(bundle.subject))]
        assert len({move.sequence for move in moves}) == 1  # by one entry
        assert {move.verb for move in moves} == {"checkpoint"}

        await session.execute("x = 2")
        assert await said(sandbox, "echo 2 > /root/x; cat /root/x") == "2\n"  # it went on
        plan.set_state("step", 2)
        await bundle.restore(first)
        assert plan.get_state("step") == 1
        assert (await session.execute("x")).value == 1
        assert await said(sandbox, "cat /root/x /root/token") == "1\nnew"
        seeded = (await session.execute("random.random()")).value
        import random

        assert seeded == random.Random(99).random()
        assert heard == [first.id]
        # One more time, after it has been somebody else's body.
        second = await bundle.checkpoint("again")
        assert await said(sandbox, "echo 3 > /root/x") == ""
        await bundle.restore(second)
        assert await said(sandbox, "cat /root/x") == "1\n"
        await sandbox.kill()
    assert store.verify(deep=True).ok


async def test_what_runs_inside_goes_on_from_there(
    servers: dict[str, Server], store: Store
) -> None:
    """gVisor brings processes back: the counter counts on from what it was."""
    async with await created(servers["gvisor"]) as sandbox:
        write = "echo $i > /tmp/n.new; mv /tmp/n.new /tmp/n"
        # By how much it counts is in a file, so that far is far, whoever stands still meanwhile.
        count = f"read by < /tmp/by; i=$((i+by)); {write}; sleep .05"
        await sandbox.exec("bash", f"echo 1 > /tmp/by; i=0; while :; do {count}; done")
        await said(
            sandbox, "until [ $(cat /tmp/n 2>/dev/null || echo 0) -gt 3 ]; do sleep .05; done"
        )
        bundle = Bundle("counting", [sandbox], store=store)
        made = await bundle.checkpoint()
        far = "echo 1000000 > /tmp/by.new; mv /tmp/by.new /tmp/by; "
        far += "until [ $(cat /tmp/n) -gt 1000000 ]; do sleep .05; done; echo far"
        assert await said(sandbox, far) == "far\n"
        await bundle.restore(made)
        assert int(await said(sandbox, "cat /tmp/n")) < 1000000
        at = int(await said(sandbox, "cat /tmp/n"))
        assert (
            await said(sandbox, f"until [ $(cat /tmp/n) -gt {at} ]; do sleep .05; done; echo on")
            == "on\n"
        )
        await sandbox.kill()


async def test_a_hook_that_fails_takes_all_of_them_back(server: Server, store: Store) -> None:
    async with Session(store=store) as session, await created(server) as sandbox:
        await session.execute("x = 1")
        await said(sandbox, "echo 1 > /root/x")
        bundle = Bundle("hooked", [session, sandbox], on_restore=[Inside(sandbox, "1 / 0")])
        made = await bundle.checkpoint()
        await session.execute("x = 2")
        await said(sandbox, "echo 2 > /root/x")
        before, count = heads(store), store.count()
        with pytest.raises(HoldfastError, match="ZeroDivisionError"):
            await bundle.restore(made)
        assert heads(store) == before
        assert store.count() == count
        assert (await session.execute("x")).value == 2
        assert await said(sandbox, "cat /root/x") == "2\n"
        await sandbox.kill()


PROGRAM = """
import asyncio, sys
from holdfast import Sandbox, Session, StateManager, open_store
from holdfast.bundle import Bundle, Inside

async def stuck(checkpoint):
    print("half way", flush=True)
    await asyncio.sleep(1000)

class Slow:
    rank, lease = -2, None  # captured last: the others are in the store by then
    def __init__(self, store):
        from holdfast.model.subject import Subject
        self.store, self.subject = store, Subject("state", "slow")
    async def pause(self): pass
    async def resume(self): pass
    async def capture(self, reason, stage): await stuck(None)
    async def enter(self, checkpoint, trust): pass
    async def arrive(self, checkpoint): pass

async def main(url, token, identity, sandbox_token, verb):
    store = open_store()
    plan = StateManager("doomed", store=store)
    plan.set_state("x", 1)
    session = await Session(store=store).start()
    sandbox = await Sandbox.attach(url, identity, sandbox_token, token=token)
    good = await Bundle("doomed", [plan, session, sandbox]).checkpoint("good")
    await (await sandbox.exec("bash", "echo 2 > /root/x")).wait()
    print("ready", flush=True)
    sys.stdin.readline()
    if verb == "restore":
        await Bundle("doomed", [plan, session, sandbox], on_restore=[stuck]).restore(good)
    else:
        await Bundle("doomed", [plan, session, sandbox, Slow(store)]).checkpoint()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("verb", ["make", "restore"])
async def test_a_program_that_is_killed_half_way(server: Server, store: Store, verb: str) -> None:
    """Its sandbox goes on as it was, and so does the world."""
    sandbox = await created(server)
    await said(sandbox, "echo 1 > /root/x")
    identity = (sandbox.sandbox_id, sandbox.sandbox_token)
    await sandbox.detach()
    program = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(PROGRAM),
            server.address,
            str(server.token),
            *identity,
            verb,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "ready\n"
        before = heads(store)
        program.stdin.write("go\n")
        program.stdin.flush()
        assert program.stdout.readline() == "half way\n"
    finally:
        program.send_signal(signal.SIGKILL)
        program.communicate()
    again = await _attached(server, *identity)
    assert await said(again, "cat /root/x") == "2\n"
    assert heads(store) == before
    await again.kill()


async def _attached(server: Server, identity: str, token: str) -> Sandbox:
    """As soon as the server has noticed that the last client is gone."""
    with server.client(server.token) as api:
        eventually(
            lambda: not api.get(f"/v1/sandboxes/{identity}").json().get("attached", True),
            "it is free",
        )
    return await Sandbox.attach(server.address, identity, token, token=server.token)


@pytest.mark.soak
async def test_a_server_that_is_killed_half_way(home: Path, store: Store) -> None:
    """No head has moved; whoever attaches finds the sandbox as it was last frozen."""
    starter = Starter(HOLDFAST_HOME=str(home), XDG_CONFIG_HOME=str(home))
    try:
        first = starter("--engine", "process")
        sandbox = await created(first)
        identity = (sandbox.sandbox_id, sandbox.sandbox_token)
        await said(sandbox, "echo 1 > /root/x")

        async def kill(checkpoint: object) -> None:
            first.process.kill()
            first.process.wait()

        bundle = Bundle("shot", [sandbox], store=store, on_restore=[kill])
        made = await bundle.checkpoint()
        await said(sandbox, "echo 2 > /root/x")
        await sandbox.checkpoint("later", leave_running=True)
        before = heads(store)
        with pytest.raises(HoldfastError):
            await bundle.restore(made)
        assert heads(store) == before
        await sandbox.detach()
        second = starter("--engine", "process")
        again = await Sandbox.attach(second.address, *identity, token=second.token)
        assert await said(again, "cat /root/x") == "2\n"
        await again.kill()
    finally:
        starter.end()


async def test_over_http(servers: dict[str, Server], store: Store) -> None:
    """What the server runs and what it only keeps, bound and brought back by the server."""
    server = servers["process"]
    StateManager("kept", store=store).checkpoint()
    async with await created(server) as sandbox:
        with server.client(server.token) as api:
            api.timeout = httpx.Timeout(120)
            name = f"sandbox/{sandbox.sandbox_id}"
            assert api.post("/v1/sessions", json={"name": "hosted"}).status_code == 200
            await said(sandbox, "echo 1 > /root/x")
            wanted = {"name": "http", "members": [name, "session/hosted", "state/kept"]}
            made = api.post("/v1/bundles", json={**wanted, "reason": "together"})
            assert made.status_code == 200, made.text
            one = f"/v1/checkpoints/{made.json()['checkpoint']['id']}"
            members = {
                each["subject"]: each for each in api.get(f"{one}/members").json()["members"]
            }
            assert {subject: each["running"] for subject, each in members.items()} == {
                name: True,
                "session/hosted": True,
                "state/kept": False,
            }
            await said(sandbox, "echo 2 > /root/x")
            back = api.post(f"{one}/members/restore")
            assert back.status_code == 200, back.text
            assert await said(sandbox, "cat /root/x") == "1\n"
            before = heads(store)
            for wrong, status in (
                ({"name": "b", "members": ["state/none"]}, 404),
                ({"name": "b", "members": [name, name]}, 422),
                ({"name": "b", "members": ["bundle/http"]}, 400),
                ({"name": "b", "members": []}, 422),
            ):
                refused = api.post("/v1/bundles", json=wrong)
                assert (refused.status_code, "error" in refused.json()) == (status, True), (
                    refused.text
                )
            with store.lease("session/theirs", owner="somebody"):
                refused = api.post(
                    "/v1/bundles", json={"name": "b", "members": [name, "session/theirs"]}
                )
                assert refused.status_code == 409
                assert "somebody" in refused.json()["error"]["message"]
            assert heads(store) == before
            assert await said(sandbox, "echo still there") == "still there\n"
            assert api.delete("/v1/sessions/hosted").status_code == 200
        await sandbox.kill()


async def test_what_cannot_be_bound(
    servers: dict[str, Server], store: Store, tmp_path: Path
) -> None:
    server = servers["process"]
    async with await created(server) as sandbox:
        with pytest.raises(UsageError, match="in which store"):
            Bundle("b", [sandbox])
        other = Bundle("b", [sandbox], store=open_store(tmp_path / "other"))
        with pytest.raises(UsageError, match="another store"):
            await other.checkpoint()
        assert await said(sandbox, "echo on") == "on\n"
        with pytest.raises(BadInput, match="no member"):
            Bundle("b", [sandbox], store=store, on_restore=[Inside("session/x", "1")])
        busy = await sandbox.exec("bash", "sleep 100")
        with pytest.raises(Conflict, match="running"):
            await Bundle("b", [sandbox], store=store).checkpoint()
        await busy.kill()
        await busy.wait()
        await sandbox.kill()
    async with await Sandbox.create(server.address, token=server.token) as plain:
        with pytest.raises(HoldfastError, match="not enabled"):
            await Bundle("b", [plain], store=store).checkpoint()
        await plain.kill()


def test_without_await(servers: dict[str, Server], store: Store) -> None:
    server = servers["process"]
    with sync.Sandbox.create(server.address, token=server.token, enable_checkpoint=True) as sandbox:
        sandbox.files.write("/root/x", "1")
        bundle = sync.Bundle("plain", [sandbox], store=store)
        made = bundle.checkpoint()
        sandbox.files.write("/root/x", "2")
        bundle.restore(made)
        assert sandbox.files.read("/root/x") == b"1"
        sandbox.kill()


def test_from_the_command_line(
    servers: dict[str, Server], store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers["process"]
    StateManager("listed", store=store).checkpoint()
    with sync.Sandbox.create(server.address, token=server.token, enable_checkpoint=True) as sandbox:
        sandbox.files.write("/root/x", "1")
        names = (f"sandbox/{sandbox.sandbox_id}", "state/listed")
        denied = run("bundle", "make", "typed", *names)
        assert (denied.code, "HOLDFAST_TOKEN" in denied.err) == (8, True)
        monkeypatch.setenv("HOLDFAST_TOKEN", str(server.token))
        with server.client(server.token) as api:
            assert api.post("/v1/sessions", json={"name": "typed"}).status_code == 200
        names = (*names, "session/typed")
        for name in (names[0], names[2]):  # each by itself, too
            taken = run("checkpoint", name, "--reason", "by hand", "--json")
            assert (taken.code, taken.json["checkpoint"]["reason"]) == (0, "by hand"), taken.err
        made = run("bundle", "make", "typed", *names, "--json")
        assert made.code == 0, made.err
        sandbox.files.write("/root/x", "2")
        back = run("bundle", "restore", "bundle/typed", "--json")
        assert back.code == 0, back.err
        assert {each["subject"] for each in back.json["checkpoints"]} == {*names, "bundle/typed"}
        assert sandbox.files.read("/root/x") == b"1"
        wrong = run("bundle", "make", "b", *names, "--server", "ftp://x")
        assert wrong.code == 2
        with server.client(server.token) as api:
            assert api.delete("/v1/sessions/typed").status_code == 200
        nobody = run("bundle", "make", "b", *names, "--server", "http://127.0.0.1:9")
        assert "does not answer" in nobody.err
        sandbox.kill()
