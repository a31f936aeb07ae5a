"""What happens in the store and under the server, told to whoever watches (spec/server-v1.md).

One look at the log serves all watchers; while nobody watches, nobody looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from holdfast.model.errors import HoldfastError
from holdfast.server import background, shapes
from holdfast.server.crossing import Crossing
from holdfast.server.sandboxes import accept

if TYPE_CHECKING:
    from holdfast.store import Store

log = logging.getLogger("holdfast.server")

NEAR_SECONDS, FAR_SECONDS = 0.25, 2.0  # between two looks: a folder's log, and a bucket's
WAITING = 200  # events that a watcher may leave unread
TOO_SLOW = 1013

Fact = Callable[[], shapes.Shape]


@dataclass(slots=True)
class _Picture:
    """The store as it was last told."""

    sequence: int = -1
    subjects: dict[str, shapes.Shape] = field(default_factory=dict)


class _Listener:
    """One watcher's unread events; one that leaves too many unread is told no more."""

    def __init__(self) -> None:
        self.unread: asyncio.Queue[str] = asyncio.Queue(WAITING)
        self.late = False

    def tell(self, text: str) -> None:
        try:
            self.unread.put_nowait(text)
        except asyncio.QueueFull:
            self.late = True


class Watcher:
    """Looks at the log, and tells everybody the same."""

    def __init__(
        self, ask: Crossing, running: Fact, proven: Fact, seconds: float = NEAR_SECONDS
    ) -> None:
        self._ask = ask
        self._running = running
        self._proven = proven
        self._seconds = seconds
        self._listeners: set[_Listener] = set()
        self._looking: asyncio.Task[None] | None = None
        self._picture = _Picture()
        self._told: dict[str, shapes.Shape] = {}  # what was last told of each fact
        self._trouble = False

    async def serve(self, socket: WebSocket) -> None:
        """One watcher, until it leaves."""
        await accept(socket)
        listener = _Listener()
        try:
            # Before it listens: what is told from here on is then after its `hello`.
            if self._looking is None:
                look = await self._ask(lambda store: (_picture(store), self._proven()))
                self._picture, proven = look
                self._told = {"running": self._running(), "proven": proven}
            hello = {"event": "hello", "sequence": self._picture.sequence, **self._told}
            listener.tell(_text({**hello, "running": self._running()}))
            self._listeners.add(listener)
            self._looking = self._looking or asyncio.create_task(
                background.repeat("watching the store", lambda: self._seconds, self._look)
            )
            await _until_it_leaves(socket, listener)
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look(self) -> None:
        before = self._picture
        try:
            found, proven = await self._ask(lambda store: (_change(store, before), self._proven()))
        except HoldfastError as error:
            if not self._trouble:
                log.warning("the store cannot be watched: %s", error)
                self._tell({"event": "trouble", **shapes.error(error)})
            self._trouble = True
            return
        if self._trouble:
            self._trouble = False
            self._tell({"event": "trouble", "error": None})
        if found is not None:
            self._picture, event = found
            self._tell(event)
        for name, fact in {"running": self._running(), "proven": proven}.items():
            if fact != self._told[name]:
                self._told[name] = fact
                self._tell({"event": name, name: fact})

    def _tell(self, event: shapes.Shape) -> None:
        text = _text(event)
        for listener in self._listeners:
            listener.tell(text)


async def _until_it_leaves(socket: WebSocket, listener: _Listener) -> None:
    leaving = asyncio.create_task(_left(socket))
    try:
        while not leaving.done():
            taking = asyncio.create_task(listener.unread.get())
            await asyncio.wait({leaving, taking}, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                taking.cancel()
            elif listener.late:
                await socket.close(TOO_SLOW, "too slow")
                return
            else:
                with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                    await socket.send_text(taking.result())
    finally:
        leaving.cancel()


async def _left(socket: WebSocket) -> None:
    """Ends when the client does; what it says meanwhile is of no interest."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


def _picture(store: Store) -> _Picture:
    sequence = store.sequence
    return _Picture(sequence, {str(e.subject): shapes.subject(e) for e in store.subjects()})


def _change(store: Store, before: _Picture) -> tuple[_Picture, shapes.Shape] | None:
    """The store as it is now, and what to tell about it; None when nothing happened."""
    if store.sequence == before.sequence:
        return None
    changes = store.changes(before.sequence)
    subjects = {str(each.subject): shapes.subject(each) for each in store.subjects()}
    event: shapes.Shape = {
        "event": "change",
        "since": before.sequence,
        "sequence": changes.sequence,
        "complete": changes.complete,
        "subjects": [told for name, told in subjects.items() if before.subjects.get(name) != told],
        "gone": [name for name in before.subjects if name not in subjects],
        "checkpoints": [shapes.checkpoint(each) for each in changes.checkpoints],
        "removed": list(changes.removed),
        "moves": [shapes.move(each) for each in changes.moves],
    }
    return _Picture(changes.sequence, subjects), event


def _text(event: shapes.Shape) -> str:
    return msgspec.json.encode(event).decode()
