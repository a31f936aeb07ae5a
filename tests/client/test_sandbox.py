"""The Python client against a real server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from tests.server.conftest import Server, Starter

from holdfast import BadInput, Conflict, Denied, NotFound, Sandbox, Unsupported, UsageError, sync
from holdfast.client.link import Unreachable, address, pauses


async def new(server: Server, **options: object) -> Sandbox:
    return await Sandbox.create(server.address, token=server.token, **options)  # type: ignore[arg-type]


async def output(sandbox: Sandbox, code: str) -> str:
    process = await sandbox.exec("bash", code)
    await process.wait()
    return str(await process.stdout.read_all())


async def test_exec(server: Server) -> None:
    statuses: list[str] = []
    sandbox = await new(server, on_status=lambda status, text: statuses.append(status))
    process = await sandbox.exec("bash", "echo out; echo err >&2; exit 3")
    assert await process.stdout.read_all() == "out\n"
    assert await process.stderr.read_all() == "err\n"
    assert (await process.wait()).code == 3
    assert process.exit is not None
    pieces = [
        piece async for piece in (await sandbox.exec("python", "print('a'); print('b')")).stdout
    ]
    assert "".join(map(str, pieces)) == "a\nb\n"
    assert statuses[:2] == ["CREATING", "RUNNING"]
    await sandbox.kill()
    assert sandbox.state == "killed"
    with pytest.raises(Conflict, match="killed"):
        await sandbox.exec("bash", "echo no")


async def test_input_environment_bytes_and_several_at_once(server: Server) -> None:
    async with await new(server) as sandbox:
        reader = await sandbox.exec("python", "print(input())")
        beside = await sandbox.exec(
            argv=["sh", "-c", "echo $A; pwd; cat"], env={"A": "b"}, cwd="/tmp"
        )
        await beside.write("given")
        await beside.end_input()
        assert await beside.stdout.read_all() == "b\n/tmp\ngiven"
        assert (await beside.wait()).code == 0
        await reader.write("later\n")
        assert await reader.stdout.read_all() == "later\n"
        raw = await sandbox.exec(argv=["printf", r"\377\000"], binary=True)
        assert await raw.stdout.read_all() == b"\xff\x00"
        endless = await sandbox.exec("bash", "sleep 1000")
        await endless.kill()
        assert (await endless.wait()).signal == 9
        terminal = await sandbox.exec(
            "bash", "stty size; read x; stty size", pty=True, rows=5, columns=6
        )
        seen = ""
        while "5 6" not in seen:  # it may come in pieces
            seen += str(await terminal.stdout.read())
        await terminal.resize(7, 8)
        await terminal.write("\n")
        assert "7 8" in str(await terminal.stdout.read_all())
        await sandbox.kill()


async def test_errors_say_what_is_wrong(server: Server) -> None:
    async with await new(server) as sandbox:
        with pytest.raises(Unsupported, match="cobol"):
            await sandbox.exec("cobol", "x")
        with pytest.raises(NotFound, match="no-such"):
            await sandbox.exec(argv=["no-such"])
        busy = await sandbox.exec("bash", "sleep 1000")
        with pytest.raises(NotFound, match="no-such"):
            await sandbox.exec(argv=["no-such"])
        await busy.kill()
        await busy.wait()
        with pytest.raises(BadInput):
            await sandbox.snapshot_filesystem("../x")
        process = await sandbox.exec("bash", "sleep 1000")
        with pytest.raises(Unsupported, match="not enabled"):
            await sandbox.checkpoint()
        assert sandbox.state == "lost"  # already
        with pytest.raises(Conflict, match="hung up after a checkpoint that failed"):
            await sandbox.exec("bash", "echo no")
        with pytest.raises(Conflict, match="hung up after a checkpoint that failed"):
            await process.stdout.read_all()
    await (await Sandbox.attach(server.address, sandbox.sandbox_id)).kill()
    with pytest.raises(NotFound):
        await Sandbox.attach(server.address, "0" * 32, "x", token=server.token)
    with pytest.raises(UsageError, match="token"):
        await Sandbox.attach(server.address, "0" * 32, token=server.token)
    with pytest.raises(Denied):
        await Sandbox.create(server.address, token="wrong")
    with pytest.raises(Unreachable):
        await Sandbox.create("http://127.0.0.1:1", token="x")
    with pytest.raises(BadInput):
        await Sandbox.create("ftp://x")
    for name in ("../../x", "", "a b", "<script>", "x" * 101):
        with pytest.raises(BadInput, match="bad name"):
            await new(server, name=name)
    with pytest.raises(BadInput, match="needs checkpoints"):
        await new(server, enable_sandbox_handoff=True)


async def test_the_verbs(server: Server) -> None:
    sandbox = await new(server, enable_checkpoint=True)
    await sandbox.files.write("/root/a/file", "one")
    first = await sandbox.checkpoint("first", leave_running=True)
    assert first.id
    await sandbox.files.write("/root/a/file", b"two")
    await sandbox.snapshot_filesystem("with-two")
    copies = await sandbox.fork(count=2)
    assert [await copy.files.read("/root/a/file") for copy in copies] == [b"two", b"two"]
    await copies[0].files.remove("/root/a")
    with pytest.raises(NotFound):
        await copies[0].files.read("/root/a/file")
    assert [each.name for each in await copies[1].files.list("/root/a")] == ["file"]
    for copy in copies:
        await copy.kill()
    await sandbox.rollback(first)
    assert await sandbox.files.read_text("/root/a/file") == "one"
    done = await sandbox.checkpoint()
    assert sandbox.state == "checkpointed"
    assert done.id != first.id
    with pytest.raises(Conflict, match="checkpointed"):
        await sandbox.exec("bash", "echo no")
    again = await Sandbox.attach(server.address, sandbox.sandbox_id, sandbox.sandbox_token)
    with pytest.raises(Conflict):
        await Sandbox.attach(server.address, sandbox.sandbox_id)
    assert await output(again, "cat /root/a/file") == "one"
    await again.kill()
    two = await new(server, filesystem_snapshot_name="with-two")
    assert await output(two, "cat /root/a/file") == "two"
    await two.kill()


async def test_tokens_are_remembered(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both, of what this program made, copies too; else they are given, or in the environment."""
    sandbox = await new(server, enable_checkpoint=True)
    [copy] = await sandbox.fork()
    for each in (copy, sandbox):
        await each.checkpoint()
        back = await Sandbox.attach(server.address, each.sandbox_id)
        await back.kill()
        with pytest.raises(UsageError, match="token"):  # what is gone is forgotten
            await Sandbox.attach(server.address, each.sandbox_id)
    with pytest.raises(Denied):
        await Sandbox.create(server.address)
    monkeypatch.setenv("HOLDFAST_TOKEN", str(server.token))
    await (await Sandbox.create(server.address)).kill()
    with pytest.raises(Denied):  # what is given counts
        await Sandbox.create(server.address, token="wrong")


@contextlib.asynccontextmanager
async def cable(server: Server) -> AsyncIterator[tuple[str, list[asyncio.Task[None]]]]:
    """A way to the server that can be cut: its address, and the pieces of cable in use."""
    host, port = server.address.removeprefix("http://").split(":")
    tasks: list[asyncio.Task[None]] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, int(port))

        async def one_way(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()

        ways = (one_way(reader, far_writer), one_way(far_reader, writer))
        mine = [asyncio.ensure_future(way) for way in ways]
        tasks.extend(mine)
        await asyncio.wait(mine, return_when=asyncio.FIRST_COMPLETED)
        for sink in (writer, far_writer):
            sink.transport.abort()

    listener = await asyncio.start_server(carry, "127.0.0.1", 0, family=socket.AF_INET)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", tasks


async def test_a_broken_connection_loses_nothing(server: Server) -> None:
    async with cable(server) as (url, tasks):
        sandbox = await Sandbox.create(url, token=server.token)
        code = "import time\nfor n in range(40):\n print(n, flush=True)\n time.sleep(.05)"
        process = await sandbox.exec("python", code)
        for _ in range(3):
            await asyncio.sleep(0.4)
            for task in tasks:
                task.cancel()
            tasks.clear()
        assert await process.stdout.read_all() == "".join(f"{n}\n" for n in range(40))
        assert (await process.wait()).code == 0
        assert await output(sandbox, "echo still") == "still\n"
        await sandbox.kill()


async def test_processes_beside_lose_nothing_either(server: Server) -> None:
    async with cable(server) as (url, tasks):
        sandbox = await Sandbox.create(url, token=server.token)
        code = "import time\nfor n in range(40):\n print(n, flush=True)\n time.sleep(.05)"
        holding = await sandbox.exec("bash", "sleep 1000")
        running = [await sandbox.exec("python", code) for _ in range(2)]
        silent = await sandbox.exec("bash", "sleep 7; echo late")  # longer than it is doubted
        for _ in range(3):
            await asyncio.sleep(0.4)
            for task in tasks:
                task.cancel()
            tasks.clear()
        for process in running:
            assert await process.stdout.read_all() == "".join(f"{n}\n" for n in range(40))
            assert (await process.wait()).code == 0
        assert await silent.stdout.read_all() == "late\n"
        await holding.kill()
        assert (await holding.wait()).signal == 9
        await sandbox.kill()


async def test_questions_while_the_connection_is_broken(server: Server) -> None:
    async with cable(server) as (url, tasks):
        sandbox = await Sandbox.create(url, token=server.token)
        broken = 0
        while broken < 3:
            asked = asyncio.ensure_future(sandbox.files.list("/root"))
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            tasks.clear()
            # in time, or told that no answer will come
            [answer] = await asyncio.wait_for(asyncio.gather(asked, return_exceptions=True), 30)
            if isinstance(answer, Unreachable):
                broken += 1
                # held back until the connection is there again
                assert await asyncio.wait_for(sandbox.files.list("/root"), 30) is not None
        await sandbox.kill()


async def test_large_files(server: Server) -> None:
    sandbox = await new(server)
    large = bytes(range(251)) * 40_000
    await sandbox.files.write("/root/a/large", large)
    assert await sandbox.files.read("/root/a/large") == large
    await sandbox.files.rename("/root/a/large", "/root/b")
    assert [each.name for each in await sandbox.files.list("/root/a")] == []
    with pytest.raises(NotFound):
        await sandbox.files.rename("/root/a/large", "/root/c")
    with pytest.raises(BadInput):
        await sandbox.files.write("/root/b/under-a-file", large)
    with pytest.raises(BadInput):
        await sandbox.files.write("/root/a", large)  # a folder
    names = {each.name for each in await sandbox.files.list("/root")}
    assert {"a", "b"} <= names
    assert not any("part" in name for name in names)
    await sandbox.kill()


async def test_a_file_that_changes_while_it_is_read(server: Server) -> None:
    sandbox = await new(server)
    await sandbox.files.write("/root/log", bytes(9 << 20))
    grow = "echo more >> /root/log"
    growing = await sandbox.exec("bash", f"{grow}; echo on; while :; do {grow}; done")
    assert await growing.stdout.read() == "on\n"
    with pytest.raises(Conflict, match="changed"):
        await sandbox.files.read("/root/log")
    await growing.kill()
    await sandbox.kill()


async def test_a_server_that_went_away(server: Server) -> None:
    async with cable(server) as (url, tasks):
        sandbox = await Sandbox.create(url, token=server.token, enable_auto_reconnect=False)
        process = await sandbox.exec("bash", "sleep 1000")
        for task in tasks:
            task.cancel()
        with pytest.raises(Unreachable, match="connection"):
            await process.stdout.read_all()
        assert (await process.wait()).reason
        assert sandbox.state == "lost"
    back = await Sandbox.attach(server.address, sandbox.sandbox_id, token=server.token)
    await back.kill()


IDLE = {"enable_checkpoint": True, "enable_idle_timeout_auto_checkpoint": True}


@pytest.mark.parametrize(("options", "state"), [({}, "deleted"), (IDLE, "checkpointed")])
async def test_output_that_ends_with_its_sandbox(
    server: Server, options: dict[str, object], state: str
) -> None:
    """Silence is no sign of life: the idle time is over, and whoever reads is told so."""
    # Long enough for both to be begun, and for the first to have spoken.
    sandbox = await new(server, idle_timeout=4.0, **options)
    process = await sandbox.exec("bash", "echo early; sleep 1000; echo late")
    beside = await sandbox.exec("bash", "sleep 1000")
    with pytest.raises(Conflict, match="idle time"):
        await process.stdout.read_all()
    with pytest.raises(Conflict, match="idle time"):
        _ = [piece async for piece in beside.stderr]
    assert await process.stdout.read() == "early\n"  # what came is not lost
    with pytest.raises(Conflict, match="idle time"):
        await process.stdout.read()
    for each in (process, beside):
        assert "idle time" in str((await each.wait()).reason)
    with pytest.raises(Conflict, match="idle time"):
        await sandbox.exec("bash", "echo no")
    async with asyncio.timeout(60):
        while sandbox.state == "running":
            await asyncio.sleep(0.01)
    assert sandbox.state == state


async def test_output_keeps_a_sandbox_from_being_idle(server: Server) -> None:
    """Every frame counts for the idle timer, also one of a program that nobody talks to."""
    sandbox = await new(server, idle_timeout=3.0)
    said = await output(sandbox, "for n in $(seq 16); do echo $n; sleep 0.25; done")
    assert said.split() == [str(n) for n in range(1, 17)]  # for longer than that
    await sandbox.kill()


async def test_output_that_this_program_ends(server: Server) -> None:
    for end, word in ((Sandbox.detach, "left"), (Sandbox.kill, "killed")):
        sandbox = await new(server)
        process = await sandbox.exec("bash", "sleep 1000")
        reading = asyncio.ensure_future(process.stdout.read_all())
        await end(sandbox)
        with pytest.raises(Conflict, match=word):
            await reading


def test_without_await(server: Server) -> None:
    with sync.Sandbox.create(server.address, token=server.token, enable_checkpoint=True) as sandbox:
        process = sandbox.exec("bash", "echo hi")
        assert process.stdout.read_all() == "hi\n"
        assert process.wait().code == 0
        assert "".join(sandbox.exec("bash", "echo there").stdout) == "there\n"
        sandbox.files.write("/root/x", "y")
        assert sandbox.files.read("/root/x") == b"y"
        [copy] = sandbox.fork()
        assert copy.files.read("/root/x") == b"y"
        copy.kill()
        sandbox.checkpoint()
    again = sync.Sandbox.attach(server.address, sandbox.sandbox_id, token=server.token)
    assert again.files.read("/root/x") == b"y"
    again.kill()


def test_addresses_and_pauses() -> None:
    assert address("https://h:1/base/", "/attach/x", sandbox_token="a&b") == (
        "wss://h:1/base/attach/x?sandbox_token=a%26b"
    )
    found = pauses(60)
    assert 30 <= sum(found) <= 70
    assert max(found) <= 5


@pytest.mark.parametrize("engine", ["process", "gvisor"])
async def test_names_of_any_bytes_are_reached(start: Starter, engine: str) -> None:
    server = start("--engine", engine, "--pool", "0")
    sandbox = await Sandbox.create(server.address, token=server.token)
    code = r"cd /root && printf one > $'caf\xe9' && mkdir $'\xff' && printf two > $'\xff/b'"
    assert (await (await sandbox.exec("bash", code)).wait()).code == 0
    names = {entry.name: entry.kind for entry in await sandbox.files.list("/root")}
    assert names["caf\udce9"] == "file"
    assert await sandbox.files.read("/root/caf\udce9") == b"one"
    (inner,) = await sandbox.files.list("/root/\udcff")
    assert await sandbox.files.read(f"/root/\udcff/{inner.name}") == b"two"
    await sandbox.files.write("/root/\udcfe", "three")
    await sandbox.files.rename("/root/\udcfe", "/root/plain")
    assert await sandbox.files.read("/root/plain") == b"three"
    await sandbox.files.remove("/root/\udcff")
    with pytest.raises(NotFound):
        await sandbox.files.read("/root/\udcff/b")
    with pytest.raises(BadInput, match="half a character"):
        await sandbox.files.read("/root/\ud800")
    path = {"path": base64.b64encode(b"/root/caf\xe9").decode(), "path_encoding": "base64"}
    with server.client(server.token) as client:
        told = client.post(
            f"/v1/sandboxes/{sandbox.sandbox_id}/files", json={"verb": "read", **path}
        )
    assert told.json()["data"] == "one"
    await sandbox.kill()
