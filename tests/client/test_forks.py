"""Copies of a sandbox, as their client gets them: all of them, or none is left."""

from __future__ import annotations

import json

import pytest
from websockets.asyncio.server import ServerConnection, serve

from holdfast import Sandbox
from holdfast.model.errors import NotFound

COPIES = ("a" * 32, "b" * 32, "d" * 32)


async def test_copies_that_nobody_gets_are_ended() -> None:
    """By a scripted server, which does not know the second one any more."""
    killed: list[str] = []

    async def talk(connection: ServerConnection) -> None:
        async def say(**message: object) -> None:
            await connection.send(json.dumps(message))

        async def status(word: str) -> None:
            await say(event="status_update", status=f"SANDBOX_{word}")

        assert connection.request is not None
        path = connection.request.path
        if "attach" not in path:
            await connection.recv()  # what the sandbox is to be like
            await say(event="sandbox_id", sandbox_id="c" * 32, sandbox_token="t")
        elif COPIES[1] in path:
            await status("NOT_FOUND")
            return
        await status("RUNNING")
        async for text in connection:
            asked = json.loads(text)
            if asked["action"] == "fork":
                made = [{"sandbox_id": each, "sandbox_token": "t"} for each in COPIES]
                await say(event="fork", sandboxes=made, request_id=asked["request_id"])
            elif asked["action"] == "kill_sandbox":
                killed.append(next(each for each in COPIES if each in path))
                await status("KILLING")
                await status("KILLED")
                return

    async with serve(talk, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        sandbox = await Sandbox.create(f"http://127.0.0.1:{port}", enable_auto_reconnect=False)
        with pytest.raises(NotFound) as caught:
            await sandbox.fork(3)
        assert killed == [COPIES[0], COPIES[2]]
        assert COPIES[1] in "".join(caught.value.__notes__)
        await sandbox.detach()
