"""Processes inside of a sandbox, as seen from the host: what they say, what is asked of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.protocol.agent_frames import PIECE, Header
from holdfast.sandbox.replay import Replay

WINDOW = 256 << 10
# Output that may go unpaid: paying for every word would wake the agent for every word.
UNPAID = WINDOW // 4

# Takes the output of a process as it comes, instead of its being kept for a client.
Tap = Callable[[str, bytes], None]


class Line(Protocol):
    """How the agent is reached."""

    @property
    def still(self) -> bool:
        """Whether the agent hears nothing now."""
        ...

    @property
    def held(self) -> Sequence[tuple[Header, bytes]]:
        """What it will hear when it goes on."""
        ...

    def send(self, header: Header, data: bytes = b"") -> None: ...


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended."""

    code: int | None = None
    signal: int | None = None
    reason: str | None = None


class Process:
    """A process inside, as seen from here."""

    def __init__(
        self,
        line: Line,
        identity: str,
        replay: Replay | None = None,
        balance: tuple[int, int] = (0, 0),
    ) -> None:
        self._line = line
        self.identity = identity
        self.replay = replay or Replay()
        self.tap: Tap | None = None
        self.exit: Exit | None = None
        self.follower = False  # somebody reads along: it may be slower than the process
        self._changed = asyncio.Event()
        # Bytes received for which no credit was given back; bytes of input the agent would take.
        self._owed, self._grant = balance
        self._granted = asyncio.Event()

    # -- what is heard

    def heard(self, stream: str, data: bytes) -> None:
        if self.tap is None:
            self.replay.add(stream, data)
        else:
            self.tap(stream, data)
        self._owed += len(data)
        if not self.follower:
            self.consumed()
        self._change()

    def ended(self, how: Exit) -> None:
        self.replay.finish()
        self.exit = how
        self._change()
        self._granted.set()

    def granted(self, count: int) -> None:
        self._grant += count
        self._granted.set()

    @property
    def balance(self) -> tuple[int, int]:
        """What both sides owe each other, for a checkpoint: output unpaid, input granted. What an
        agent that stands still will hear when it goes on, a restored one will not."""
        owed, grant = self._owed, self._grant
        for header, data in self._line.held:
            if header["id"] == self.identity:
                paid = header.get("bytes")
                owed += paid if isinstance(paid, int) else 0
                grant += len(data)
        return owed, grant

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- what is asked

    def consumed(self) -> None:
        """What was received has been passed on: the process may write more."""
        if self._owed >= UNPAID and self.exit is None:
            owed, self._owed = self._owed, 0
            self._line.send({"type": "credit", "id": self.identity, "bytes": owed})

    def unfollow(self) -> None:
        """Nobody reads along any more: it need not wait for that."""
        self.follower = False
        self.consumed()

    def changed(self) -> Coroutine[Any, Any, object]:
        """There is new output since this was called, or the end.

        What is waited for is chosen by the call, not by the first step of the coroutine: whoever
        wraps it in a task (`wait_for` does) would miss what comes before that task begins.
        """
        return self._changed.wait()

    async def wait(self) -> Exit:
        while self.exit is None:
            await self.changed()
        return self.exit

    async def write(self, data: bytes) -> None:
        """Give input, as fast as the process takes it; after its end it goes nowhere."""
        view = memoryview(data)
        while view and self.exit is None:
            while self._grant <= 0 and self.exit is None:
                self._granted.clear()
                await self._granted.wait()
            count = min(len(view), self._grant, PIECE)
            if self.exit is None:
                self._grant -= count
                frame: Header = {"type": "input", "id": self.identity}
                self._line.send(frame, bytes(view[:count]))
                view = view[count:]

    def end_input(self) -> None:
        self._line.send({"type": "input", "id": self.identity})

    def kill(self) -> None:
        self._line.send({"type": "kill", "id": self.identity})

    async def killed(self, seconds: float) -> bool:
        """Kill it, and wait for its end; whether the agent has carried that out. An end cannot be
        told while its last output waits for a slow reader, or while the sandbox stands still."""
        self.kill()
        if not self._delayed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.wait()
        return self.exit is not None or self._delayed

    @property
    def _delayed(self) -> bool:
        return self._owed >= UNPAID or self._line.still

    def abandon(self) -> None:
        """Nobody wants it any more: it is killed, and listened to, or its end would never come."""
        self.tap = drop
        self.kill()
        self.unfollow()

    def resize(self, rows: int, columns: int) -> None:
        self._line.send({"type": "resize", "id": self.identity, "rows": rows, "columns": columns})


def drop(stream: str, data: bytes) -> None:
    """Takes the output of a process that nobody knows."""
