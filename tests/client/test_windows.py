"""Output that nobody reads is in nobody's way, takes bounded memory, and is not lost."""

from __future__ import annotations

import asyncio

from tests.client.scripted import begun
from tests.client.test_sandbox import cable
from tests.server.conftest import Server
from websockets.asyncio.server import ServerConnection, serve

from holdfast import Sandbox
from holdfast.client import Process
from holdfast.client.streams import MOST_UNREAD
from holdfast.testing.waiting import until

SIZE = 20_000_000
MUCH = f"yes | head -c {SIZE}"
PIECE = 64 << 10
PATIENCE = 60


async def _unread(sandbox: Sandbox) -> Process:
    """A process that would write more than is taken."""
    process = await sandbox.exec("bash", MUCH)
    await until(lambda: process.stdout.full, "nothing more is taken")
    return process


async def test_everything_else_is_answered_and_nothing_is_lost(server: Server) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        await Sandbox.create(server.address, token=server.token) as sandbox,
    ):
        front, beside = await _unread(sandbox), await _unread(sandbox)
        await sandbox.files.write("/root/note", b"x" * (3 << 20))
        assert len(await sandbox.files.read("/root/note")) == 3 << 20
        other = await sandbox.exec("bash", "echo here")
        assert await other.stdout.read_all() == "here\n"
        for process in (front, beside):
            assert process.exit is None
            assert process.stdout.unread < MOST_UNREAD + 2 * PIECE
            told = str(await process.stdout.read_all())
            assert (len(told), told.count("y\n")) == (SIZE, SIZE // 2)
            assert (process.stdout.missing, (await process.wait()).code) == (0, 0)
        await _unread(sandbox)
        await sandbox.kill()
        assert sandbox.state == "killed"


async def test_one_stream_is_read_beside_another_that_is_almost_full(server: Server) -> None:
    """In text of more bytes than characters, too."""
    left = MOST_UNREAD - 200_000
    code = f"head -c {left} /dev/zero >&2; yes é | head -c {SIZE}"
    async with (
        asyncio.timeout(PATIENCE),
        await Sandbox.create(server.address, token=server.token) as sandbox,
    ):
        process = await sandbox.exec("bash", code)
        assert len(str(await process.stdout.read_all()).encode()) in range(SIZE - 1, SIZE + 3)
        assert len(await process.stderr.read_all()) == left
        waited_for = await sandbox.exec("bash", MUCH)
        assert (await waited_for.wait()).code == 0
        assert len(await waited_for.stdout.read_all()) == SIZE
        await sandbox.kill()


async def test_a_connection_that_breaks_while_nobody_reads(server: Server) -> None:
    """The process goes on meanwhile. What is no longer kept is counted."""
    async with asyncio.timeout(PATIENCE), cable(server) as (url, tasks):
        sandbox = await Sandbox.create(url, token=server.token)
        process = await _unread(sandbox)
        for task in tasks:
            task.cancel()
        tasks.clear()
        told = await process.stdout.read_all()
        assert len(told) >= MOST_UNREAD
        assert len(told) + process.stdout.missing == SIZE
        again = await _unread(sandbox)  # as the execution that it is now
        assert again.stdout.unread < MOST_UNREAD + 2 * PIECE
        await sandbox.kill()


async def test_a_sandbox_is_put_away_although_nobody_reads(server: Server) -> None:
    """Where what runs cannot be frozen it is killed, and that needs no reader either."""
    sandbox = await Sandbox.create(
        server.address,
        token=server.token,
        enable_checkpoint=True,
        enable_idle_timeout_auto_checkpoint=True,
        idle_timeout=3,
    )
    await sandbox.exec("bash", MUCH)
    await until(lambda: sandbox.state == "checkpointed", "it was idle, and put away")
    await sandbox.detach()


async def test_a_server_that_knows_no_windows_is_made_to_wait() -> None:
    pieces, size = 40, 1 << 20

    async def talk(connection: ServerConnection) -> None:
        say = await begun(connection)
        for _ in range(pieces):
            await say(event="stdout", data="x" * size)
        await say(status="SANDBOX_EXECUTION_DONE")
        await connection.wait_closed()

    async with serve(talk, "127.0.0.1", 0) as scripted, asyncio.timeout(PATIENCE):
        port = scripted.sockets[0].getsockname()[1]
        async with await Sandbox.create(f"http://127.0.0.1:{port}") as sandbox:
            process = await sandbox.exec("bash", "anything")
            await until(lambda: process.stdout.full, "nothing more is taken")
            assert process.stdout.unread <= MOST_UNREAD + size
            assert len(await process.stdout.read_all()) == pieces * size
