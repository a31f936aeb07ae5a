"""The connection to one client: frames in, facts and events out, until one side goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from holdfast.model.errors import HoldfastError
from holdfast.protocol.sandbox_flow import Conversation, Fact, Phase, encode
from holdfast.protocol.sandbox_messages import SandboxIdEvent

SEND_SECONDS = 60.0  # a client that takes nothing for so long is gone


class Connection:
    """What a client is told, in the order of the protocol, and what it says."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._conversation = Conversation()
        self._sending = asyncio.Lock()
        self._waiting: deque[tuple[Fact, HoldfastError | None]] = deque()
        self.touch: Callable[[], object] = lambda: None  # called for every frame, either way
        self.closed = asyncio.Event()

    @property
    def phase(self) -> Phase:
        return self._conversation.phase

    @property
    def executing(self) -> bool:
        """Whether the client was told of an execution, and not yet of its end."""
        return self._conversation.executing

    # -- telling

    async def tell(
        self,
        fact: Fact,
        message: str | None = None,
        *,
        error: HoldfastError | None = None,
        identity: SandboxIdEvent | None = None,
        request_id: str | None = None,
    ) -> None:
        """Say a fact, and close when that was the last one."""
        async with self._sending:
            if self.phase is Phase.CLOSED:
                return
            frames = self._conversation.tell(
                fact, message, error=error, identity=identity, request_id=request_id
            )
            for frame in frames:
                await self._put(frame)
            if self._conversation.close is not None:
                await self._shut(self._conversation.close)
            await self._say_what_waits()

    async def tell_of_others(self, fact: Fact, error: HoldfastError | None = None) -> None:
        """Say a fact that somebody else brought about, as soon as it can be said: a client that is
        in the middle of something of its own hears first what comes of that."""
        async with self._sending:
            self._waiting.append((fact, error))
            await self._say_what_waits()

    async def _say_what_waits(self) -> None:
        while self._waiting and self._conversation.may(self._waiting[0][0]):
            fact, error = self._waiting.popleft()
            for frame in self._conversation.tell(fact, error=error):
                await self._put(frame)
            if self._conversation.close is not None:
                await self._shut(self._conversation.close)
        if self.phase is Phase.CLOSED:
            self._waiting.clear()

    async def say(self, event: msgspec.Struct) -> bool:
        """Whether it was sent: to a client that has gone, nothing is."""
        async with self._sending:
            return self.phase is not Phase.CLOSED and await self._put(encode(event))

    async def _put(self, frame: bytes) -> bool:
        if self.closed.is_set():
            return False
        self.touch()
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._socket.send_text(frame.decode())
        except (WebSocketDisconnect, RuntimeError, OSError, TimeoutError):
            self.closed.set()
        return not self.closed.is_set()

    async def _shut(self, code: int) -> None:
        if not self.closed.is_set():
            with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
                await self._socket.close(code)
            self.closed.set()

    # -- hearing

    async def hear(self) -> str | bytes | None:
        """The client's next frame; None when it went, or was shown the door."""
        if self.closed.is_set():
            return None
        reading = asyncio.ensure_future(self._read())
        ending = asyncio.ensure_future(self.closed.wait())
        done, pending = await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        if reading not in done or (frame := reading.result()) is None:
            return None
        self.touch()
        return frame

    async def _read(self) -> str | bytes | None:
        if self._socket.client_state is not WebSocketState.CONNECTED:
            return None
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            self.closed.set()
            return None
        text = message.get("text")
        data = message.get("bytes")
        return text if isinstance(text, str) else data if isinstance(data, bytes) else b""
