"""Every flow of the protocol against a real server with real engines."""

from __future__ import annotations

import asyncio
import base64
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import websockets
from tests.server.conftest import ANSWER, Server, Starter
from tests.server.sandbox_client import Wire, attach, created

from holdfast.store import Store
from holdfast.testing.waiting import eventually

SLEEP = "import time\nprint('begun', flush=True)\ntime.sleep(1000)"


@pytest.fixture(scope="module", params=["process", "gvisor"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = str(tmp_path_factory.mktemp("home"))
    with Starter(HOLDFAST_HOME=folder, XDG_CONFIG_HOME=folder) as starter:
        yield starter("--engine", request.param)


async def test_create_and_execute(server: Server) -> None:
    async with Wire(server, "/create") as wire:
        await wire.send()
        assert await wire.until("RUNNING") == ["CREATING", "sandbox_id", "RUNNING"]
        identity, token = wire.identity
        assert len(identity) == 32
        assert len(token) >= 43
        await wire.send(language="python", code="print('hello')\nimport sys\nsys.exit(3)")
        assert await wire.until("EXECUTION_DONE") == ["EXECUTION_RUNNING", "EXECUTION_DONE"]
        assert wire.output() == "hello\n"
        assert wire.heard[-2] == {"event": "exit", "code": 3}
        assert all(each["message"] for each in wire.heard if each["event"] == "status_update")
        assert await wire.run("bash", "echo one; echo two >&2") == "one\ntwo\n"
        await wire.send(action="kill_sandbox")
        assert await wire.rest() == (["KILLING", "DELETING", "DELETED", "KILLED"], 1000)
    async with attach(server, wire.identity) as gone:
        assert await gone.rest() == (["NOT_FOUND"], 1011)


@pytest.mark.parametrize(
    "options",
    [
        {"enable_sandbox_handoff": True},  # without enable_checkpoint
        {"enable_idle_timeout_auto_checkpoint": True},
        {"engine": "other"},
        {"image": "../etc"},
        {"filesystem_snapshot_name": "no-such-snapshot"},
        {"filesystem_snapshot_name": "../../x"},
        {"idle_timeout": -1},
    ],
)
async def test_create_fails(server: Server, options: dict[str, object]) -> None:
    async with Wire(server, "/create") as wire:
        await wire.send(**options)
        assert await wire.rest() == (["CREATING", "CREATION_ERROR", "error"], 4000)
        assert wire.heard[-1]["message"]


async def test_create_fails_where_no_checkpoints_are_taken(start: Starter) -> None:
    server = start("--engine", "process", "--checkpoints", "off")
    async with Wire(server, "/create") as wire:
        await wire.send(enable_checkpoint=True)
        assert await wire.rest() == (["CREATING", "CREATION_ERROR", "error"], 4000)
        assert wire.heard[-1]["kind"] == "unsupported"
        assert "no checkpoints" in wire.heard[-1]["message"]
    plain = await created(server)
    assert await plain.run("bash", "echo fine") == "fine\n"
    await plain.send(action="kill_sandbox")
    await plain.rest()


async def test_refusals_leave_the_connection_open(server: Server) -> None:
    wire = await created(server)
    await wire.send(language="cobol", code="x")
    assert await wire.until("error") == ["EXECUTION_UNSUPPORTED_LANGUAGE_ERROR", "error"]
    await wire.send(language="python")
    assert await wire.until("error") == ["EXECUTION_ERROR", "error"]
    await wire.send(event="stdin")
    assert await wire.until("error") == ["STDIN_ERROR", "error"]
    await wire.send(action="kill_process")
    assert await wire.until("EXECUTION_FORCE_KILLED") == ["EXECUTION_FORCE_KILLED"]
    await wire.send(action="dance", request_id="7")
    assert (await wire.next())["event"] == "error"
    for frame in ("not json", b"\xff\x00", "[]", "{" * 1000):
        await wire.send_raw(frame)
        assert (await wire.next())["event"] == "error"
    await wire.send(argv=["/no/such/program"])
    assert await wire.until("error") == ["EXECUTION_ERROR", "error"]
    assert await wire.run("bash", "echo fine") == "fine\n"
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_one_execution_at_a_time_and_killing_it(server: Server) -> None:
    wire = await created(server)
    await wire.send(language="python", code=SLEEP)
    await wire.until("stdout")
    await wire.send(language="bash", code="echo no")
    assert await wire.until("error") == ["EXECUTION_ERROR", "error"]
    await wire.send(action="kill_process")
    assert await wire.until("EXECUTION_DONE") == ["EXECUTION_FORCE_KILLED", "EXECUTION_DONE"]
    assert wire.heard[-2] == {"event": "exit", "signal": 9}
    assert await wire.run("bash", "echo next") == "next\n"
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_input(server: Server) -> None:
    wire = await created(server)
    await wire.send(
        language="python", code="print(input().upper())\nimport sys\nprint(len(sys.stdin.read()))"
    )
    await wire.send(event="stdin", data="grüße\n")
    await wire.send(event="stdin", data="x" * 300_000)
    await wire.send(event="stdin", data="AAAA", encoding="base64", eof=True)
    await wire.until("EXECUTION_DONE")
    assert wire.output() == "GRÜSSE\n300003\n"
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_processes_beside_the_execution(server: Server) -> None:
    wire = await created(server)
    await wire.send(language="python", code=SLEEP)
    await wire.until("stdout")
    await wire.send(
        argv=["sh", "-c", "echo $WHO; pwd"],
        env={"WHO": "me"},
        cwd="/tmp",
        process_id="a",
        request_id="1",
    )
    beside = []
    while not beside or beside[-1]["event"] != "exit":
        message = await wire.next()
        if "process_id" in message:
            beside.append(message)
    assert beside[0] == {"event": "started", "process_id": "a", "request_id": "1"}
    assert {each["process_id"] for each in beside} == {"a"}
    assert [each["event"] for each in beside if each["event"] != "stdout"] == ["started", "exit"]
    assert "".join(each.get("data", "") for each in beside) == "me\n/tmp\n"
    await wire.send(language="bash", code="tty", pty=True, rows=10, columns=20, process_id="b")
    while (event := await wire.next()).get("process_id") != "b" or event["event"] != "stdout":
        pass
    assert event["data"].startswith("/dev/pts/")
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_text_and_bytes(server: Server) -> None:
    wire = await created(server)
    split = """
import sys, time
for byte in "€".encode() + b"\\xff!":
    sys.stdout.buffer.write(bytes([byte]))
    sys.stdout.buffer.flush()
    time.sleep(0.05)
"""
    assert await wire.run("python", split) == "€�!"
    await wire.send(
        language="python",
        code="import sys\nsys.stdout.buffer.write(bytes(range(256)))",
        encoding="base64",
    )
    start = len(wire.heard)
    await wire.until("EXECUTION_DONE")
    pieces = [base64.b64decode(e["data"]) for e in wire.heard[start:] if e["event"] == "stdout"]
    assert b"".join(pieces) == bytes(range(256))
    long = "print('x' * 200_000, end='')  # " + "y" * 200_000
    assert await wire.run("python", long) == "x" * 200_000
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_files(server: Server) -> None:
    wire = await created(server)

    async def ask(**request: object) -> dict[str, object]:
        await wire.send(action="files", request_id="f", **request)
        return await wire.next()

    assert (await ask(verb="write", path="/root/a/b.txt", data="text"))["event"] == "files"
    assert (await ask(verb="read", path="/root/a/b.txt"))["data"] == "text"
    listed = await ask(verb="list", path="/root/a")
    assert [(e["name"], e["kind"], e["size"]) for e in listed["entries"]] == [("b.txt", "file", 4)]  # type: ignore[attr-defined]
    assert (await ask(verb="read", path="/root/none"))["kind"] == "not_found"
    assert (await ask(verb="read", path="/dev/zero"))["event"] == "error"
    assert (await ask(verb="write", path="/etc/passwd", data="x"))["event"] == "error"
    assert (await ask(verb="remove", path="/root/a"))["event"] == "files"
    assert (await ask(verb="list", path="/root/a"))["kind"] == "not_found"
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_checkpoint_and_attach(server: Server) -> None:
    wire = await created(server, enable_checkpoint=True)
    await wire.run("bash", "echo kept > /root/file")
    await wire.send(language="python", code=SLEEP)
    await wire.until("stdout")
    await wire.send(action="checkpoint")
    assert await wire.until("error") == ["CHECKPOINTING", "EXECUTION_IN_PROGRESS_ERROR", "error"]
    await wire.send(action="kill_process")
    await wire.until("EXECUTION_DONE")
    await wire.send(action="checkpoint", leave_running=True, reason="before", request_id="c")
    assert await wire.until("CHECKPOINTED") == ["CHECKPOINTING", "checkpoint", "CHECKPOINTED"]
    assert wire.heard[-2]["request_id"] == "c"
    assert await wire.run("bash", "cat /root/file; echo changed > /root/file") == "kept\n"
    await wire.send(action="checkpoint")
    assert await wire.rest() == (["CHECKPOINTING", "DELETING", "DELETED", "CHECKPOINTED"], 1000)
    async with attach(server, (wire.identity[0], "wrong")) as stranger:
        assert await stranger.rest() == (["PERMISSION_DENIAL_ERROR", "error"], 4000)
    async with attach(server, wire.identity) as back:
        assert await back.until("RUNNING") == ["RESTORING", "RUNNING"]
        assert await back.run("bash", "cat /root/file") == "changed\n"
        async with attach(server, wire.identity) as other:
            assert await other.rest() == (["IN_USE"], 1011)
        await back.send(action="rollback", request_id="r")
        told = await back.next()
        assert (told["event"], told["request_id"]) == ("rollback", "r")
        assert await back.run("bash", "cat /root/file") == "kept\n"
        await back.send(action="reconnect")
        assert await back.until("RUNNING") == ["RUNNING"]
    async with attach(server, wire.identity) as live:
        assert await live.until("RUNNING") == ["RUNNING"]
        await live.send(action="kill_sandbox")
        await live.rest()
    async with attach(server, wire.identity) as gone:
        assert await gone.rest() == (["NOT_FOUND"], 1011)


async def test_locks_are_told_with_handoff(server: Server) -> None:
    async with Wire(server, "/create") as wire:
        await wire.send(enable_checkpoint=True, enable_sandbox_handoff=True)
        assert await wire.until("RUNNING") == [
            "CREATING",
            "LOCK_ACQUIRING",
            "LOCK_ACQUIRED",
            "sandbox_id",
            "RUNNING",
        ]
        await wire.send(action="checkpoint")
        released = ["DELETING", "LOCK_RELEASING", "LOCK_RELEASED", "DELETED"]
        assert await wire.rest() == (["CHECKPOINTING", *released, "CHECKPOINTED"], 1000)
    async with attach(server, wire.identity) as back:
        assert await back.until("RUNNING") == [
            "RESTORING",
            "LOCK_ACQUIRING",
            "LOCK_ACQUIRED",
            "RUNNING",
        ]
        await back.send(action="kill_sandbox")
        assert await back.rest() == (["KILLING", *released, "KILLED"], 1000)


async def test_what_another_server_runs_is_in_use(start: Starter) -> None:
    first, second = start("--engine", "process"), start("--engine", "process")
    wire = await created(first, enable_checkpoint=True)
    await wire.send(action="checkpoint", leave_running=True)
    await wire.until("CHECKPOINTED")
    async with attach(second, wire.identity) as other:
        assert await other.rest() == (["IN_USE"], 1011)
    assert await wire.run("bash", "echo mine") == "mine\n"
    await wire.send(action="checkpoint")
    await wire.rest()
    async with attach(second, wire.identity) as other:
        assert await other.until("RUNNING") == ["RESTORING", "RUNNING"]
        await other.send(action="kill_sandbox")
        await other.rest()


async def test_a_checkpoint_that_is_not_enabled(server: Server) -> None:
    wire = await created(server)
    await wire.run("bash", "echo here > /root/x")
    await wire.send(action="checkpoint")
    assert await wire.rest() == (["CHECKPOINTING", "CHECKPOINT_ERROR", "error"], 4000)
    async with attach(server, wire.identity) as back:
        assert await back.until("RUNNING") == ["RUNNING"]
        assert await back.run("bash", "cat /root/x") == "here\n"
        await back.send(action="kill_sandbox")
        await back.rest()


async def test_a_checkpoint_during_an_execution(server: Server) -> None:
    """Where the engine cannot, it is refused like one that was not asked for so; nothing ends."""
    wire = await created(server, enable_checkpoint=True)
    with server.client(server.token) as client:
        engine = client.get("/status").json()["engine"]
    await wire.send(language="bash", code="echo begun; read line; echo $line")
    await wire.until("stdout")
    await wire.send(action="checkpoint", leave_running=True, during_execution=True)
    if engine == "process":
        told = ["CHECKPOINTING", "EXECUTION_IN_PROGRESS_ERROR", "error"]
        assert await wire.until("error") == told
        assert wire.heard[-1]["kind"] == "unsupported"
        assert "during execution" in wire.heard[-1]["message"]
    else:
        assert await wire.until("CHECKPOINTED") == ["CHECKPOINTING", "checkpoint", "CHECKPOINTED"]
    await wire.send(event="stdin", data="on\n")
    await wire.until("EXECUTION_DONE")
    assert wire.output() == "begun\non\n"
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_snapshot_and_fork(server: Server) -> None:
    wire = await created(server, enable_checkpoint=True)
    await wire.run("bash", "echo base > /root/base")
    await wire.send(action="snapshot_filesystem", name="base")
    assert await wire.until("FILESYSTEM_SNAPSHOT_CREATED") == [
        "FILESYSTEM_SNAPSHOT_CREATING",
        "snapshot",
        "FILESYSTEM_SNAPSHOT_CREATED",
    ]
    await wire.send(action="snapshot_filesystem", name="../x")
    assert await wire.until("error") == [
        "FILESYSTEM_SNAPSHOT_CREATING",
        "FILESYSTEM_SNAPSHOT_ERROR",
        "error",
    ]
    new = await created(server, filesystem_snapshot_name="base")
    assert await new.run("bash", "cat /root/base; echo other > /root/base") == "base\n"
    await wire.send(action="fork", count=2, request_id="k")
    told = await wire.next()
    assert told["request_id"] == "k"
    passes = [(each["sandbox_id"], each["sandbox_token"]) for each in told["sandboxes"]]
    assert len({*passes, wire.identity}) == 3
    for number, identity in enumerate(passes):
        async with attach(server, identity) as copy:
            assert await copy.until("RUNNING") == ["RUNNING"]
            assert await copy.run("bash", f"ls /root; echo {number} > /root/{number}") == "base\n"
            await copy.send(action="kill_sandbox")
            await copy.rest()
    for each in (wire, new):
        await each.send(action="kill_sandbox")
        await each.rest()


async def test_reconnecting_during_an_execution(server: Server) -> None:
    wire = await created(server)
    code = "import time\nfor n in range(20):\n print(n, flush=True)\n time.sleep(.1)"
    await wire.send(language="python", code=code)
    while "3\n" not in wire.output():
        await wire.next()
    seen = wire.output()
    offset = wire.heard[-1]["offset"]
    await wire._socket.close()
    async with attach(server, wire.identity) as back:
        await back.until("RUNNING")
        await back.send(action="reconnect", offset=offset)
        assert await back.until("EXECUTION_DONE") == [
            "RUNNING",
            "EXECUTION_RUNNING",
            "EXECUTION_DONE",
        ]
        assert seen + back.output() == "".join(f"{n}\n" for n in range(20))
        await back.send(action="kill_sandbox")
        await back.rest()


async def test_attaching_to_a_busy_sandbox_without_reconnecting(server: Server) -> None:
    wire = await created(server)
    await wire.send(language="python", code="print(input())")  # nothing before it is told of here
    await wire.until("EXECUTION_RUNNING")
    await wire._socket.close()
    async with attach(server, wire.identity) as back:
        assert await back.until("EXECUTION_RUNNING") == ["RUNNING", "EXECUTION_RUNNING"]
        await back.send(event="stdin", data="late\n")
        assert await back.until("EXECUTION_DONE") == ["EXECUTION_DONE"]
        assert back.output() == "late\n"
        await back.send(action="kill_sandbox")
        await back.rest()


async def test_idle(server: Server) -> None:
    wire = await created(server, idle_timeout=0.5)
    assert await wire.rest() == (["DELETING", "DELETED"], 1000)
    options = {"enable_checkpoint": True, "enable_idle_timeout_auto_checkpoint": True}
    # Long enough for an execution to be begun, before and after: silence is no sign of life.
    wire = await created(server, idle_timeout=4, **options)
    await wire.run("bash", "echo kept > /root/x")
    assert await wire.rest() == (["CHECKPOINTING", "DELETING", "DELETED", "CHECKPOINTED"], 1000)
    async with attach(server, wire.identity) as back:
        await back.until("RUNNING")
        assert await back.run("bash", "cat /root/x") == "kept\n"
        await back.send(action="kill_sandbox")
        await back.rest()


async def test_tokens(server: Server) -> None:
    for path in ("/create", f"/attach/{'0' * 32}?sandbox_token=x"):
        with pytest.raises(websockets.InvalidStatus, match="403"):
            await Wire(server, path, Authorization="Bearer wrong").__aenter__()
    with pytest.raises(websockets.InvalidStatus, match="403"):  # no sandbox token at all
        await Wire(server, f"/attach/{'0' * 32}").__aenter__()
    with pytest.raises(websockets.InvalidStatus, match="403"):
        await Wire(server, "/create", Origin="http://evil.example").__aenter__()
    for identity in ("0" * 32, "..", "x", "0" * 31 + "g"):
        async with attach(server, (identity, "x")) as wire:
            assert await wire.rest() == (["NOT_FOUND"], 1011)


async def test_the_token_of_a_sandbox_as_the_bearer(start: Starter, store: Store) -> None:
    """Where the server asks for no token of its own, the bearer is the sandbox's."""
    server = start("--engine", "process", "--auth", "none")
    wire = await created(server, enable_checkpoint=True)
    identity, token = wire.identity
    await wire.run("bash", "echo kept > /root/x")
    await wire.send(action="checkpoint")
    await wire.rest()
    kept = store.head(f"sandbox/{identity}")
    for wrong in ("wrong", token[:-1], token.swapcase()):
        async with Wire(server, f"/attach/{identity}", Authorization=f"Bearer {wrong}") as wire:
            assert await wire.rest() == (["PERMISSION_DENIAL_ERROR", "error"], 4000)
        with server.client() as client:
            assert client.get("/v1/sandboxes").json() == {
                "sandboxes": []
            }  # nothing is brought back
    with pytest.raises(websockets.InvalidStatus, match="403"):
        await Wire(server, f"/attach/{identity}", Authorization="Bearer ").__aenter__()
    assert store.head(f"sandbox/{identity}") == kept
    async with Wire(server, f"/attach/{identity}", Authorization=f"Bearer {token}") as back:
        assert await back.until("RUNNING") == ["RESTORING", "RUNNING"]
        assert await back.run("bash", "cat /root/x") == "kept\n"
        async with Wire(server, f"/attach/{identity}", Authorization="Bearer wrong") as stranger:
            assert await stranger.rest() == (["PERMISSION_DENIAL_ERROR", "error"], 4000)
        assert await back.run("bash", "echo mine") == "mine\n"
        await back.send(action="kill_sandbox")
        await back.rest()


async def test_execute_over_http(server: Server) -> None:
    with server.client(server.token) as client:
        answer = client.post("/execute?language=bash", content="echo out; echo err >&2")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain")
        assert sorted(answer.text.split()) == ["err", "out"]
        assert client.post("/execute", content="print(1)").text == "1\n"
        assert client.post("/execute?language=cobol", content="x").status_code == 422
        events = client.post(
            "/execute", content="exit(5)", headers={"Accept": "application/x-ndjson"}
        )
        assert events.text == '{"event":"exit","code":5}\n'
        assert client.get("/status").json()["sandboxes"] == 0
    assert httpx.post(f"{server.address}/execute", content="1", timeout=ANSWER).status_code == 401


async def test_a_counter_survives_a_killed_server(start: Starter) -> None:
    """500 MB and a counter in gVisor: checkpoint, kill -9 of the server, attach to a new one."""
    first = start("--engine", "gvisor")
    wire = await created(first, enable_checkpoint=True)
    code = """
import hashlib, os, select, sys
held = os.urandom(500 << 20)
digest = lambda: hashlib.sha256(held).hexdigest()
print(digest(), flush=True)
n = 0
while True:
    n += 1
    print(n, len(held), flush=True)
    if select.select([sys.stdin], [], [], 0.05)[0]:
        print(sys.stdin.readline().strip(), digest(), flush=True)
"""
    await wire.send(language="python", code=code)
    while "\n1 " not in wire.output():
        await wire.until("stdout")
    digest = wire.output().split("\n")[0]
    assert len(digest) == 64
    await wire.send(action="checkpoint", leave_running=True, during_execution=True)
    assert await wire.until("CHECKPOINTED") == ["CHECKPOINTING", "checkpoint", "CHECKPOINTED"]
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    second = start("--engine", "gvisor")
    async with attach(second, wire.identity) as back:
        words = await back.until("stdout")
        assert words == ["RESTORING", "RUNNING", "EXECUTION_RUNNING"]
        while back.output().count("\n") < 5:
            await back.until("stdout")
        # Not a byte is missing, and none comes twice: what it says now begins, perhaps within a
        # line, where what it had said to the first client by the checkpoint ends.
        pieces = [each for each in back.heard if each["event"] == "stdout"]
        begins = pieces[0]["offset"] - len(pieces[0]["data"])
        assert all(not each.get("gap") for each in pieces)
        assert 0 < begins <= len(wire.output())
        lines = (wire.output()[:begins] + back.output()).split("\n")[1:-1]
        assert lines == [f"{n} {500 << 20}" for n in range(1, len(lines) + 1)]
        await back.send(event="stdin", data="again\n")
        while not (told := re.search("^again (.*)\n", back.output(), re.MULTILINE)):
            await back.until("stdout")
        assert told[1] == digest  # every byte of what it held is what it was
        await back.send(action="kill_sandbox")
        await back.rest()


@pytest.mark.parametrize("engine", ["process", "gvisor"])
async def test_stopping_puts_everything_away(start: Starter, engine: str) -> None:
    """All of them, whether somebody is attached or not; what runs goes on where the engine can."""
    first = start("--engine", engine)
    wire = await created(first, enable_checkpoint=True)
    await wire.run("bash", "echo kept > /root/x")
    await wire.send(language="python", code=SLEEP)
    await wire.until("stdout")
    alone = await created(first, enable_checkpoint=True)
    await alone.run("bash", "echo too > /root/x")
    await alone._socket.close()
    code, errors = await asyncio.to_thread(first.stop, signal.SIGTERM)
    assert code == 0, errors
    assert ("no security boundary" in errors) == (engine == "process")  # said when it began
    second = start("--engine", engine)
    for identity, kept in ((wire.identity, "kept\n"), (alone.identity, "too\n")):
        async with attach(second, identity) as back:
            going_on = ["EXECUTION_RUNNING"] if (engine, kept) == ("gvisor", "kept\n") else []
            last = going_on[-1] if going_on else "RUNNING"
            assert await back.until(last) == ["RESTORING", "RUNNING", *going_on]
            if going_on:
                await back.send(action="kill_process")
                await back.until("EXECUTION_DONE")
            assert await back.run("bash", "cat /root/x") == kept


def test_what_a_killed_server_left_is_cleared_away(start: Starter, holdfast_home: Path) -> None:
    from holdfast.runtime.trial import mounts_below

    first = start("--engine", "process")
    runs = holdfast_home / "run"
    eventually(lambda: bool(mounts_below(runs)), "something is mounted")
    first.process.kill()
    first.process.wait()
    left = list(runs.iterdir())
    second = start("--engine", "process")
    assert not any(folder.exists() for folder in left)
    second.stop(signal.SIGTERM)
    assert list(runs.iterdir()) == []
    assert mounts_below(runs) == []
