"""Behind a load balancer that knows its clients by a cookie: a scripted server that sets some."""

from __future__ import annotations

import asyncio
import json

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from holdfast import Sandbox

ROUTES = ("one; Path=/; HttpOnly", "two", "two")


async def test_cookies_are_sent_again_after_the_connection_broke() -> None:
    sent: list[str | None] = []

    def answer(connection: ServerConnection, request: Request, response: Response) -> None:
        response.headers["Set-Cookie"] = f"route={ROUTES[len(sent)]}"
        if not sent:
            response.headers["Set-Cookie"] = "seen=a=b"
        sent.append(request.headers.get("Cookie"))

    async def talk(connection: ServerConnection) -> None:
        async def say(**message: object) -> None:
            await connection.send(json.dumps({"event": "status_update", **message}))

        if len(sent) == 1:
            await connection.recv()  # what the sandbox is to be like
            await say(event="sandbox_id", sandbox_id="c" * 32, sandbox_token="t")
        await say(status="SANDBOX_RUNNING")
        await connection.recv()  # the execution, then `reconnect`
        await say(status="SANDBOX_EXECUTION_RUNNING")
        await say(event="stdout", data=f"{len(sent)}", offset=len(sent))
        if len(sent) < len(ROUTES):
            connection.transport.abort()
            return
        await say(event="exit", code=0)
        await say(status="SANDBOX_EXECUTION_DONE")
        await connection.wait_closed()

    async with serve(talk, "127.0.0.1", 0, process_response=answer) as server, asyncio.timeout(60):
        port = server.sockets[0].getsockname()[1]
        async with await Sandbox.create(f"http://127.0.0.1:{port}") as sandbox:
            process = await sandbox.exec("bash", "anything")
            assert (await process.wait()).code == 0
    assert sent == [None, "route=one; seen=a=b", "route=two; seen=a=b"]
