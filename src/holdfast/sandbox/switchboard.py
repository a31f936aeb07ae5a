"""The switchboard: connections to and from programs inside, carried by the switch in there.

What the switch says is not believed, only read: a connection that nobody opened, or more data than
was allowed, ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.model.errors import Busy, HoldfastError, NotFound
from holdfast.sandbox.agent.switch import (
    CLOSE,
    CREDIT,
    DATA,
    END,
    HEAD,
    MOST,
    OPEN,
    PIECE,
    READY,
    WINDOW,
)
from holdfast.sandbox.line import AgentLine
from holdfast.sandbox.process import Process
from holdfast.sandbox.start import Start

CONNECT_SECONDS = 30.0
Answer = Callable[["Channel"], Awaitable[None]]


class Channel:
    """One connection, as a stream in both directions."""

    def __init__(self, board: Switchboard, number: int) -> None:
        self._board = board
        self.number = number
        self._heard = bytearray()
        self._ended = False  # nothing more comes
        self._credit = WINDOW
        self._owed = 0
        self._changed = asyncio.Event()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = False

    async def read(self) -> bytes:
        """What has come; empty at the end."""
        while not self._heard and not self._ended and not self.closed:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._heard)
        self._heard.clear()
        if data and not self.closed:
            await self._board.send(CREDIT, self.number, len(data).to_bytes(4, "big"))
        return data

    async def write(self, data: bytes) -> None:
        """As fast as it is taken. Raises ConnectionError."""
        view = memoryview(data)
        while view:
            while self._credit <= 0 and not self.closed:
                self._changed.clear()
                await self._changed.wait()
            if self.closed:
                raise ConnectionResetError("the connection into the sandbox has ended")
            count = min(len(view), self._credit, PIECE)
            self._credit -= count
            await self._board.send(DATA, self.number, bytes(view[:count]))
            view = view[count:]

    async def end(self) -> None:
        """Nothing more will be written."""
        if not self.closed:
            await self._board.send(END, self.number)

    async def close(self) -> None:
        if not self.closed:
            self.shut("")
            self._board.forget(self.number)
            await self._board.send(CLOSE, self.number)

    # -- what the switch says

    def hear(self, data: bytes) -> None:
        if len(self._heard) + len(data) > WINDOW:
            raise ValueError("more than was allowed")
        self._heard += data
        self._changed.set()

    def credit(self, count: int) -> None:
        self._credit = min(WINDOW, self._credit + count)
        self._changed.set()

    def no_more(self) -> None:
        self._ended = True
        self._changed.set()

    def shut(self, why: str) -> None:
        self.closed = self._ended = True
        self._changed.set()
        if not self.opened.done():
            self.opened.set_exception(NotFound(f"nothing answers there: {why or 'closed'}"))
            self.opened.exception()  # it may be that nobody asks


class Switchboard:
    """All connections of one sandbox, while nobody freezes it."""

    def __init__(self, answer: Answer | None = None) -> None:
        self._answer = answer
        self._process: Process | None = None
        self._buffer = bytearray()
        self._channels: dict[int, Channel] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._next = 2
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sending = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.exit is None

    async def begin(self, line: AgentLine, port: int = 0) -> None:
        """Start the switch; with a port, programs reach us there. Raises HoldfastError."""
        start = Start(call={"call": "switch", "path": str(port)}, cwd="/")
        self._process = await line.start(start, tap=self._hear)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                while not self._ready.done() and self.alive:
                    await asyncio.wait({self._ready}, timeout=0.05)
        except TimeoutError:
            pass  # as if it had ended
        if not self._ready.done():
            await self.close()
            raise HoldfastError("the switch of the sandbox could not begin")
        self._watch = asyncio.create_task(self._until_gone(self._process))

    async def _until_gone(self, process: Process) -> None:
        await process.wait()
        self._hang_up("the switch of the sandbox has ended")

    def _hang_up(self, why: str) -> None:
        for channel in list(self._channels.values()):
            channel.shut(why)
        self._channels.clear()

    async def connect(self, port: int) -> Channel:
        """A connection to a port of the loopback inside. Raises NotFound when nobody listens."""
        if len(self._channels) >= MOST:
            raise Busy(f"{MOST} connections into this sandbox at once", hint="try again later")
        number, self._next = self._next, self._next + 2
        channel = self._channels[number] = Channel(self, number)
        await self.send(OPEN, number, str(port).encode())
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await channel.opened
        except TimeoutError:
            await channel.close()
            raise NotFound(f"nothing answers on port {port}") from None
        return channel

    async def send(self, kind: int, number: int, data: bytes = b"") -> None:
        if self._process is not None:
            async with self._sending:
                await self._process.write(HEAD.pack(kind, number, len(data)) + data)

    def forget(self, number: int) -> None:
        self._channels.pop(number, None)

    async def close(self) -> None:
        """End every connection, and the switch."""
        process, self._process = self._process, None
        self._hang_up("the sandbox is being frozen or has ended")
        for task in list(self._answers):
            task.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)
        if process is not None and process.exit is None:
            process.kill()
            await process.wait()

    # -- what the switch says

    def _hear(self, stream: str, data: bytes) -> None:
        if stream != "stdout" or (self._process is None and self._ready.done()):
            return
        self._buffer += data
        try:
            while len(self._buffer) >= HEAD.size:
                kind, number, length = HEAD.unpack_from(self._buffer)
                if length > WINDOW:
                    raise ValueError("a frame that is too long")
                if len(self._buffer) < HEAD.size + length:
                    return
                rest = bytes(self._buffer[HEAD.size : HEAD.size + length])
                del self._buffer[: HEAD.size + length]
                self._obey(kind, number, rest)
        except ValueError:
            if self._process is not None:
                self._process.kill()  # only something else than our switch speaks like this

    def _obey(self, kind: int, number: int, data: bytes) -> None:
        if kind == READY:
            if not self._ready.done():
                self._ready.set_result(None)
            return
        channel = self._channels.get(number)
        if channel is None:
            if kind == OPEN and number % 2 and self._answer and len(self._channels) < MOST:
                self._take(number, self._answer)
            return  # or of one that has ended
        if kind == OPEN and not channel.opened.done():
            channel.opened.set_result(None)
        elif kind == DATA:
            channel.hear(data)
        elif kind == CREDIT:
            channel.credit(int.from_bytes(data, "big"))
        elif kind == END:
            channel.no_more()
        elif kind == CLOSE:
            self._channels.pop(number)
            channel.shut(data.decode("utf-8", "replace")[:200])

    def _take(self, number: int, answer: Answer) -> None:
        channel = self._channels[number] = Channel(self, number)

        async def serve() -> None:
            try:
                await answer(channel)
            finally:
                await channel.close()

        task = asyncio.create_task(serve(), name="holdfast egress")
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
