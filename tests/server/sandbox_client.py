"""A client that knows nothing but the wire: it sends what it is told and notes what it hears."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any

import websockets
from tests.server.conftest import Server
from websockets.asyncio.client import connect

SECONDS = 60

# Says the next whole number, again and again: none may be lost, or come twice.
COUNTER = """
import time
n = 0
while True:
    n += 1
    print(n, flush=True)
    time.sleep(0.02)
"""


class Wire:
    """One WebSocket to a server."""

    def __init__(self, server: Server, path: str, **headers: str) -> None:
        if server.token is not None:
            headers.setdefault("Authorization", f"Bearer {server.token}")
        url = server.address.replace("http", "ws", 1) + path
        self._connecting = connect(
            url, additional_headers=headers, max_size=1 << 24, open_timeout=60
        )
        self.heard: list[dict[str, Any]] = []
        self.identity: tuple[str, str] = ("", "")

    async def __aenter__(self) -> Wire:
        self._socket = await self._connecting
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._socket.close()

    async def send(self, **message: object) -> None:
        await self._socket.send(json.dumps(message))

    async def send_raw(self, frame: str | bytes) -> None:
        await self._socket.send(frame)

    async def next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await asyncio.wait_for(self._socket.recv(), SECONDS))
        self.heard.append(message)
        if message["event"] == "sandbox_id":
            self.identity = (message["sandbox_id"], message["sandbox_token"])
        return message

    async def until(self, word: str) -> list[str]:
        """What is heard up to a status or an event, as words; output and `exit` left out."""
        words: list[str] = []
        while not words or words[-1] != word:
            words.append(word_of(await self.next()))
        return [each for each in words if each not in ("stdout", "stderr", "exit")]

    async def rest(self) -> tuple[list[str], int | None]:
        """Everything until the server closes, and how it closed."""
        words: list[str] = []
        try:
            while True:
                words.append(word_of(await self.next()))
        except websockets.ConnectionClosed:
            kept = [
                each for each in words if each not in ("stdout", "stderr", "exit", "checkpoint")
            ]
            return kept, self._socket.close_code

    async def run(self, language: str, code: str, **more: object) -> str:
        """Execute to the end; both outputs together."""
        await self.send(language=language, code=code, **more)
        start = len(self.heard)
        await self.until("EXECUTION_DONE")
        return self.output(start)

    def output(self, start: int = 0) -> str:
        return "".join(
            message["data"]
            for message in self.heard[start:]
            if message["event"] in ("stdout", "stderr")
        )


def word_of(message: dict[str, Any]) -> str:
    status = message.get("status")
    return str(status).removeprefix("SANDBOX_") if status else str(message["event"])


async def created(server: Server, **options: object) -> Wire:
    """A wire with a sandbox at its end; the caller enters nothing and closes it."""
    wire = await Wire(server, "/create").__aenter__()
    await wire.send(**options)
    await wire.until("RUNNING")
    return wire


def attach(server: Server, identity: tuple[str, str], **headers: str) -> Wire:
    return Wire(server, f"/attach/{identity[0]}?sandbox_token={identity[1]}", **headers)
