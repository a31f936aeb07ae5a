"""Sessions that this server runs, so that people can work in them from a browser.

Each is a `Session` like any other: it owns its subject while it runs. Whoever attaches sees the
same console, from its last lines on, and may type into it (spec/server-v1.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.errors import Conflict, Corrupt, HoldfastError, NotFound, Unsupported
from holdfast.protocol.session_messages import (
    ClientMessage,
    ErrorMessage,
    ExecuteMessage,
    Message,
    RestoreMessage,
    ResultMessage,
    ShutdownMessage,
)
from holdfast.server import background
from holdfast.session import Session
from holdfast.session.dialogue import Dialogue
from holdfast.session.result import Repr

if TYPE_CHECKING:
    from holdfast.store import Store

log = logging.getLogger("holdfast.server")

MOST = 16
SCROLLBACK = 512 * 1024  # characters of a console that are kept for whoever comes later
STOP_SECONDS = 20.0
IDLE_SECONDS = 3600.0
IDLE_LOOK = 5.0

_decode = msgspec.json.Decoder(ClientMessage).decode
Listener = Callable[[str | None], None]  # None: it has ended


def check_reference(reference: str) -> None:
    """A session also restores files, by their paths; those of the server are nobody else's. Raises
    NotFound."""
    if reference.startswith("/"):
        raise NotFound(f"there is no checkpoint {reference!r:.100}")


class Console:
    """One session and everything that was said in it; all who listen hear the same."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._listeners: set[Listener] = set()
        self._said: deque[str] = deque()
        self._length = 0
        self._executions = 0
        self._running: set[int] = set()
        self.touched = time.monotonic()
        self.farewell = ""  # why it ended, for those who listened
        self._dialogue = Dialogue(session, self._say)

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def clients(self) -> int:
        return len(self._listeners)

    @property
    def idle_seconds(self) -> float:
        """For how long nothing was typed, run or said."""
        return 0.0 if self.busy else time.monotonic() - self.touched

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear what was said and what will be; gives the way to leave."""
        for text in self._said:
            listener(text)
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def take(self, text: str) -> None:
        """What one of the clients says. Raises Corrupt."""
        self.touched = time.monotonic()
        try:
            message = _decode(text)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"not a message for a session: {error}") from None
        if isinstance(message, ShutdownMessage):
            raise Corrupt("a console does not end its session: DELETE /v1/sessions/NAME does")
        if isinstance(message, ExecuteMessage):
            # Ids of the console's own: clients may choose the same. Everybody sees what was typed.
            self._executions += 1
            self._running.add(self._executions)
            message = ExecuteMessage(execution_id=self._executions, code=message.code)
            self._say(message)
        if isinstance(message, RestoreMessage):
            try:
                check_reference(message.checkpoint_id)
            except NotFound as error:
                told = ErrorMessage(
                    error_type=error.kind, message=str(error), request_id=message.request_id
                )
                self._say(told)
                return
        self._dialogue.take(message)

    async def finish(self, farewell: str) -> None:
        """The session has ended: whoever listens is told."""
        self._dialogue.leave()
        await self._dialogue.finished()
        self.farewell = farewell
        for listener in list(self._listeners):
            listener(None)

    def _say(self, message: Message) -> None:
        if isinstance(message, ResultMessage):
            self._running.discard(message.execution_id)
        elif isinstance(message, ErrorMessage):
            self._running.discard(message.request_id)
        self.touched = time.monotonic()
        text = _encode(message)
        self._said.append(text)
        self._length += len(text)
        while self._length > SCROLLBACK and len(self._said) > 1:
            self._length -= len(self._said.popleft())
        for listener in list(self._listeners):
            listener(text)


def _encode(message: Message) -> str:
    """A message as JSON. A result's value is msgpack, which a browser has no use for: as text."""
    if isinstance(message, ResultMessage) and message.value is not None:
        from holdfast.protocol.values import decode_plain

        value = decode_plain(message.value)
        shown = str(value) if isinstance(value, Repr) else "" if value is None else repr(value)
        message = msgspec.structs.replace(message, value=None, text=shown)
    return msgspec.json.encode(message).decode()


class Sessions:
    """The sessions of one server, by name."""

    def __init__(
        self, store: Store, why_not: str | None = None, *, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._store = store
        self._why_not = why_not
        self.idle_seconds = idle_seconds  # without a word, after which a session is put away
        self._watch: asyncio.Task[None] | None = None
        self._consoles: dict[str, Console] = {}
        self._starting: set[str] = set()

    @property
    def why_not(self) -> str | None:
        """Why sessions do not run here, in words."""
        return self._why_not

    def running(self) -> list[dict[str, object]]:
        return [
            {
                "name": console.session.name,
                "subject": str(console.session.subject),
                "busy": console.busy,
                "clients": console.clients,
            }
            for console in self._consoles.values()
        ]

    def running_now(self, name: str) -> Console | None:
        return self._consoles.get(name)

    def find(self, name: str) -> Console:
        """Raises NotFound."""
        found = self._consoles.get(name)
        if found is None:
            raise NotFound(
                f"session/{name} does not run here", hint="POST /v1/sessions starts or resumes it"
            )
        return found

    async def start(self, name: str | None, *, trust: bool = False) -> Console:
        """Bring a session back from its head, or begin a new one. One that runs is given as it is.

        Raises Unsupported, Conflict, and what bringing it back raises.
        """
        if self._why_not is not None:
            raise Unsupported("this server runs no sessions", hint=self._why_not)
        if name is not None and name in self._consoles:
            return self._consoles[name]
        if len(self._consoles) + len(self._starting) >= MOST:
            raise Conflict(f"there are {MOST} sessions already", hint="stop one, then try again")
        if name is not None and name in self._starting:
            raise Conflict(f"session/{name} is being started", hint="try again in a moment")
        key = name or ""
        self._starting.add(key)
        try:
            session = await self._begin(name, trust)
        finally:
            self._starting.discard(key)
        console = self._consoles[session.name] = Console(session)
        return console

    async def _begin(self, name: str | None, trust: bool) -> Session:
        if name is None:
            return await Session(store=self._store).start()
        session = Session(name, store=self._store)  # refuses an impossible name
        known = await asyncio.to_thread(self._store.list, session.subject, None, 1)
        if known:
            return await Session.resume(session.name, store=self._store, trust=trust)
        return await session.start()

    def begin(self) -> None:
        """From now on, those that nobody uses are put away."""
        self._watch = asyncio.create_task(
            background.repeat(
                "putting idle sessions away",
                lambda: min(IDLE_LOOK, self.idle_seconds / 4),
                self._put_idle_away,
            )
        )

    async def _put_idle_away(self) -> None:
        for name, console in list(self._consoles.items()):
            if console.idle_seconds <= self.idle_seconds:
                continue
            minutes = self.idle_seconds / 60
            try:
                await self.stop(name, "idle", f"nothing was typed for {minutes:g} minutes")
            except HoldfastError as error:
                log.warning("session/%s could not be put away: %s", name, error)
            finally:
                console.touched = time.monotonic()  # tried again when it is idle again

    async def stop(self, name: str, reason: str = "stopped", why: str = "it was stopped") -> None:
        """End a session after a checkpoint. Raises NotFound; what cannot be saved does not keep it
        from ending when it has died, and does otherwise."""
        console = self.find(name)
        if console.session.alive:
            await console.session.interrupt()
            await console.session.checkpoint(reason)
        if self._consoles.get(name) is console:  # nobody else was as fast
            del self._consoles[name]
        await console.session.shutdown()
        await console.finish(why)

    async def close(self) -> list[str]:
        """End all of them; what could not be saved, in words."""
        if self._watch is not None:
            self._watch.cancel()
        troubles: list[str] = []

        async def end(name: str) -> None:
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self.stop(name, "the server stopped", "the server stopped")
            except (HoldfastError, TimeoutError) as error:
                troubles.append(f"session/{name}: {str(error) or 'it took too long'}")
                console = self._consoles.pop(name, None)
                if console is not None:
                    await console.session.shutdown()

        await asyncio.gather(*(end(name) for name in list(self._consoles)))
        return troubles
