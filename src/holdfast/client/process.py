"""A process in a sandbox, as its client sees it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from holdfast.client.streams import MOST_UNREAD, Stream
from holdfast.model.errors import HoldfastError, NotFound

WORDS_SECONDS = 1.0
STEP = MOST_UNREAD // 4  # a window is not moved for less, unless it is used up


class Wire(Protocol):
    """What a process needs of its sandbox."""

    async def send(self, message: Mapping[str, object]) -> None: ...

    async def ask(
        self, message: Mapping[str, object], answer: asyncio.Future[Any] | None = None
    ) -> Mapping[str, Any]: ...

    def post(self, message: Callable[[], Mapping[str, object]]) -> None: ...


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: with a code, by a signal, or for a reason that neither tells."""

    code: int | None = None
    signal: int | None = None
    reason: str | None = None


class Process:
    """Something that runs. `stdout` and `stderr` are read; `wait` gives how it ended."""

    def __init__(self, wire: Wire, process_id: str | None, binary: bool) -> None:
        self._wire = wire
        self._process_id = process_id
        self._binary = binary
        self.stdout = Stream(binary, self._widen)
        self.stderr = Stream(binary, self._widen)
        self.offset = 0  # of the last output that was seen
        self._until = self._furthest = MOST_UNREAD  # the server sends no more, nor ever might
        self.confirmed = True  # whether the server has spoken of it on this connection
        self._exit: Exit | None = None
        self._ended = asyncio.Event()
        self._kills = asyncio.Lock()  # one at a time
        self._kill: asyncio.Future[object] | None = None  # the answer to the last one
        self._killed = False

    @property
    def exit(self) -> Exit | None:
        """How it ended, once it has."""
        return self._exit if self._ended.is_set() else None

    async def wait(self) -> Exit:
        """Until it ends. Output that nobody reads is kept."""
        self._lift()
        await self._ended.wait()
        return self._exit or Exit()

    async def write(self, data: str | bytes) -> None:
        """Give input."""
        message: dict[str, object] = {"event": "stdin", **self._addressed()}
        if isinstance(data, bytes):
            message.update(data=base64.b64encode(data).decode("ascii"), encoding="base64")
        else:
            message["data"] = data
        await self._wire.send(message)

    async def end_input(self) -> None:
        """Say that no more input comes."""
        await self._wire.send({"event": "stdin", "data": "", "eof": True, **self._addressed()})

    async def kill(self) -> None:
        """Kill it and its process group, and wait until that is done; `wait` tells how it ended.
        One that has ended is fine. Raises what the server says when nothing comes of it."""
        self._lift()  # that it was killed is said behind its output
        async with self._kills:
            if self._killed or self._ended.is_set():
                return
            self._kill = asyncio.get_running_loop().create_future()
            with contextlib.suppress(NotFound):  # it ended meanwhile
                await self._wire.ask({"action": "kill_process", **self._addressed()}, self._kill)

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal that it has another size."""
        size = {"rows": rows, "columns": columns}
        await self._wire.send({"action": "resize", **size, **self._addressed()})

    def touch(self) -> None:
        """Tell the server that somebody waits for it: its sandbox is not idle."""
        if not self._ended.is_set():
            self._wire.post(self.window)

    def _lift(self) -> None:
        self.stdout.lift()
        self.stderr.lift()
        self._widen()

    def _addressed(self) -> dict[str, object]:
        return {} if self._process_id is None else {"process_id": self._process_id}

    # -- what is heard

    def heard(self, message: Mapping[str, object]) -> Stream | None:
        """Take an output event in. The stream it went to, where the server sends what it should
        not yet: some know nothing of windows."""
        stream = self.stderr if message["event"] == "stderr" else self.stdout
        data = str(message.get("data", ""))
        stream.missing += _number(message.get("gap"))
        stream.feed(base64.b64decode(data) if self._binary else data)
        before, self.offset = self.offset, _number(message.get("offset"))
        # One that has just brought the process back may not have been told yet.
        if not self.offset or min(before, self.offset) >= self._furthest + MOST_UNREAD:
            return stream
        self._widen(anew=self.offset < before)  # it was rolled back
        return None

    def window(self) -> dict[str, object]:
        """What is said of how far the server may go."""
        return {"action": "window", "until": self._until, **self._addressed()}

    def _widen(self, anew: bool = False) -> None:
        """Let the server go on, so far that no stream can have more than it holds."""
        if self._ended.is_set():
            return  # what is said of the execution would be taken for the next one
        unread = max(self.stdout.unread, self.stderr.unread)
        until = max(self.offset + MOST_UNREAD - unread, 0)
        waits = self.offset >= self._until
        if anew or until - self._until >= (1 if waits else STEP):
            self._until, self._furthest = until, max(until, self._furthest)
            self._wire.post(self.window)

    def killed(self) -> None:
        """As it was asked for."""
        if self._kill is not None and not self._kill.done():
            self._killed = True
            self._kill.set_result({})

    def spared(self, why: str) -> None:
        """It could not be killed. An error with better words may follow, or nothing."""
        if self._kill is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(WORDS_SECONDS, _fail, self._kill, HoldfastError(why))

    def left(self, how: Exit) -> None:
        """It is known how it ended."""
        self._exit = how

    def end(self, error: HoldfastError | None = None) -> None:
        """Nothing more will be heard of it. An error is told to those who read, unless it had come
        to an end of its own before."""
        how = self._exit or Exit()
        if how.code is not None:
            error = None
        elif error is None and how.signal is None and how.reason:
            error = HoldfastError(f"the output ends here: {how.reason}")
        if error is not None:
            how = replace(how, reason=str(error))
        self._exit = how
        self.stdout.finish(error)
        self.stderr.finish(error)
        self._ended.set()
        self.killed()


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _fail(waiting: asyncio.Future[object], error: HoldfastError) -> None:
    if not waiting.done():
        waiting.set_exception(error)
