"""Killing a process: it is done when `kill` returns, and told when it cannot be."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.client.scripted import begun
from tests.server.conftest import Server
from websockets.asyncio.server import ServerConnection, serve

from holdfast import Sandbox
from holdfast.client import Process
from holdfast.model.errors import Conflict, HoldfastError
from holdfast.testing.waiting import until


async def _sleeper(sandbox: Sandbox) -> tuple[Process, str]:
    """A process, and its number inside."""
    process = await sandbox.exec("bash", "echo $$; sleep 1000")
    return process, str(await process.stdout.read()).strip()


async def test_it_is_gone_when_kill_returns(server: Server) -> None:
    async with await Sandbox.create(server.address, token=server.token) as sandbox:
        front, one = await _sleeper(sandbox)
        beside, two = await _sleeper(sandbox)
        await asyncio.gather(beside.kill(), beside.kill(), front.kill())
        for number in (one, two):
            seen = await sandbox.exec("bash", f"kill -0 {number}")
            assert (await seen.wait()).code == 1
        for process in (front, beside):
            assert (await process.wait()).signal == 9
            await process.kill()  # again
        await sandbox.kill()


async def test_one_that_has_ended_takes_nothing_with_it(server: Server) -> None:
    async with await Sandbox.create(server.address, token=server.token) as sandbox:
        before = await sandbox.exec("bash", "true")
        await before.wait()
        cat = await sandbox.exec(argv=["cat"])
        await before.kill()
        await cat.write("still here")
        await cat.end_input()
        assert await cat.stdout.read_all() == "still here"
        await sandbox.kill()


async def test_output_that_nobody_reads_is_not_in_the_way(server: Server) -> None:
    async with await Sandbox.create(server.address, token=server.token) as sandbox:
        endless = await sandbox.exec(argv=["yes", "x" * 1000])
        await until(lambda: endless.stdout.full, "nothing more is taken")
        await asyncio.wait_for(endless.kill(), 30)
        assert (await endless.wait()).signal == 9
        await sandbox.kill()


@pytest.mark.parametrize("beside", [False, True])
async def test_an_execution_given_up_is_killed(beside: bool) -> None:
    """Who began it was cancelled before the server answered. By a scripted server, which answers
    for the foreground after that: it is not taken for the next one's."""
    heard: list[dict[str, object]] = []
    told: list[str] = []

    async def talk(connection: ServerConnection) -> None:
        async def status(word: str) -> None:
            message = {"event": "status_update", "status": f"SANDBOX_{word}"}
            await connection.send(json.dumps(message))

        await connection.recv()  # what the sandbox is to be like
        await status("RUNNING")
        async for text in connection:
            asked = json.loads(text)
            if asked.get("action") == "window":
                continue
            heard.append(asked)
            if asked.get("code") == "runs":
                await status("EXECUTION_RUNNING")
            elif asked.get("action") == "kill_process" and not beside:
                for word in ("EXECUTION_RUNNING", "EXECUTION_FORCE_KILLED", "EXECUTION_DONE"):
                    await status(word)

    async with serve(talk, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        sandbox = await Sandbox.create(
            f"http://127.0.0.1:{port}",
            enable_auto_reconnect=False,
            on_status=lambda status, _: told.append(status),
        )
        if beside:
            await sandbox.exec("bash", "runs")
        beginning = asyncio.ensure_future(sandbox.exec("bash", "given up"))
        await until(lambda: bool(heard) and heard[-1].get("code") == "given up", "it is asked for")
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        await until(lambda: heard[-1].get("action") == "kill_process", "it is killed")
        assert heard[-1].get("process_id") == heard[-2].get("process_id")
        if not beside:
            await until(lambda: "EXECUTION_DONE" in told, "its end is heard")
            following = await sandbox.exec("bash", "runs")
            assert "process_id" not in heard[-1]
            assert following.exit is None
        await sandbox.detach()


@pytest.mark.parametrize("words", [True, False])
async def test_what_keeps_it_from_being_killed_is_raised(words: bool) -> None:
    """By a scripted server; some say nothing but the status."""

    async def talk(connection: ServerConnection) -> None:
        say = await begun(connection)
        request = json.loads(await connection.recv())
        assert request["action"] == "kill_process"
        await say(status="SANDBOX_EXECUTION_FORCE_KILL_ERROR", message="it will not die")
        if words:
            told = {"message": "it clings to life", "kind": "conflict", "hint": "wait"}
            await say(event="error", request_id=request["request_id"], **told)
        await connection.recv()  # it may be asked again
        await say(status="SANDBOX_EXECUTION_FORCE_KILLED")
        await connection.wait_closed()

    async with serve(talk, "127.0.0.1", 0) as scripted, asyncio.timeout(60):
        port = scripted.sockets[0].getsockname()[1]
        async with await Sandbox.create(f"http://127.0.0.1:{port}") as sandbox:
            process = await sandbox.exec("bash", "anything")
            with pytest.raises(HoldfastError) as raised:
                await process.kill()
            if words:
                assert (type(raised.value), raised.value.hint) == (Conflict, "wait")
            assert str(raised.value) == ("it clings to life" if words else "it will not die")
            assert process.exit is None
            await process.kill()
