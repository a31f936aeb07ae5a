"""A server that follows a script, for what a real one does not do when it is asked to."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from websockets.asyncio.server import ServerConnection

Say = Callable[..., Awaitable[None]]


async def begun(connection: ServerConnection) -> Say:
    """Make a sandbox and begin its execution, as a server does; gives what says more."""

    async def say(**message: object) -> None:
        await connection.send(json.dumps({"event": "status_update", **message}))

    await connection.recv()  # what the sandbox is to be like
    await say(event="sandbox_id", sandbox_id="c" * 32, sandbox_token="t")
    await say(status="SANDBOX_RUNNING")
    await connection.recv()  # the execution
    await say(status="SANDBOX_EXECUTION_RUNNING")
    return say
