"""A conversation with a server about one sandbox: requests out, events in, the connection found
again when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.client.endings import DETACHED, OVER, Ending, State, announced
from holdfast.client.link import Link, Unreachable, address, pause, pauses
from holdfast.client.process import Exit, Process
from holdfast.client.statuses import DISARMING, FAILED, FATAL, ON_THE_WAY, REFUSED, status_of
from holdfast.client.streams import MOST_UNREAD
from holdfast.model.errors import Conflict, Denied, HoldfastError, NotFound, all_kinds
from holdfast.model.tracing import request_id, usable
from holdfast.protocol.sandbox_messages import Status

RECONNECT_SECONDS = 60.0
ANSWER_SECONDS = 600.0
CONFIRM_SECONDS = 5.0

OnStatus = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint that is durable."""

    id: str
    short: str = ""
    subject: str = ""
    size_bytes: int = 0
    stored_bytes: int = 0
    pause_ms: float = 0.0


class Conversation:
    """What is under way between a client and its sandbox."""

    def __init__(self, url: str, token: str | None, on_status: OnStatus | None) -> None:
        self.url = url
        self._token = token
        self._cookies: dict[str, str] = {}  # of a load balancer in between
        self._on_status = on_status
        self.link: Link | None = None
        self._reader: asyncio.Task[None] | None = None
        self.foreground: Process | None = None
        self.beside: dict[str, Process] = {}
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._step: asyncio.Future[None] | None = None  # what the work under way waits for
        self._awaited = Status.RUNNING
        self._failed: Status | None = None  # a failure whose error event comes next
        self.told: CheckpointInfo | None = None
        self._begun: asyncio.Future[None] | None = None
        self._work = asyncio.Lock()
        self._armed = False
        self._whole = asyncio.Event()  # not set while a broken connection is looked for
        self._whole.set()
        self.reconnects = True
        self.sandbox_id = ""
        self.sandbox_token = ""
        self.state: State = "running"
        self._ending: Ending | None = None  # of the sandbox, once it is announced

    def attach_address(self) -> str:
        return address(self.url, f"/attach/{self.sandbox_id}", sandbox_token=self.sandbox_token)

    async def open(self, url: str, first: Mapping[str, object] | None = None) -> None:
        """Connect, and read until the sandbox runs, or the reason why it does not."""
        self.link = await Link.open(url, self._token, self._cookies)
        try:
            if first is not None:
                await self.link.send(first)
            self._reader = asyncio.create_task(self._read(), name="holdfast sandbox")
            await self.reach(Status.RUNNING)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self._armed = False
        if self.link is not None:
            await self.link.close()
        if self._reader is not None and self._reader is not asyncio.current_task():
            await asyncio.gather(self._reader, return_exceptions=True)

    async def leave(self) -> None:
        """Close the connection to a sandbox that goes on."""
        if self.state == "running":
            self.state, self._ending = DETACHED.state, DETACHED
        await self.close()

    async def begin(self, message: Mapping[str, object], binary: bool) -> Process:
        """Begin a process: the execution, or one beside it while there is one."""
        await self._connected()
        message = {"window": MOST_UNREAD, **message}
        if self.foreground is not None:
            identity = uuid.uuid4().hex
            process = self.beside[identity] = Process(self, identity, binary)
            try:
                await self.ask({**message, "process_id": identity})
            except BaseException as error:
                self.beside.pop(identity, None)
                if isinstance(error, asyncio.CancelledError | TimeoutError):
                    with contextlib.suppress(HoldfastError):
                        await self.send({"action": "kill_process", "process_id": identity})
                raise
            return process
        process = self.foreground = Process(self, None, binary)
        self._begun = asyncio.get_running_loop().create_future()
        try:
            await self.send(message)
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._begun
        except (asyncio.CancelledError, TimeoutError):
            # The server may have begun it, or still do so. What it says of it then is not meant
            # for another one: this stays the execution until its end.
            with contextlib.suppress(HoldfastError):
                await self.send({"action": "kill_process"})
            raise
        except BaseException:
            self.foreground = None
            raise
        finally:
            self._begun = None
        return process

    # -- asking and being told

    async def _connected(self) -> None:
        """Waits while the connection is broken. Raises Conflict when it is over."""
        self.check_running()
        await self._whole.wait()
        self.check_running()

    async def send(self, message: Mapping[str, object]) -> None:
        self.check_running()
        if (link := self.link) is None:
            raise Unreachable("there is no connection")
        if request_id.get():  # a server that is not ours need not know the field
            message = {"request_id": request_id.get(), **message}
        try:
            await link.send(message)
        except Unreachable:
            if link is self.link:
                self._whole.clear()  # the reader will see it, too, and settle this
            if self._ending is not None:
                raise self._ending.error("it was not sent") from None
            raise

    def post(self, message: Callable[[], Mapping[str, object]]) -> None:
        """Say something soon. The next connection is told by `_go_on`, whatever this one heard."""
        if self.link is not None:
            self.link.post(message)

    async def ask(
        self, message: Mapping[str, object], answer: asyncio.Future[Any] | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for the event that answers it, or for `answer`, which something
        else may bring. Raises what the server says."""
        await self._connected()
        # One request may ask several times: what belongs together begins alike.
        identity = ":".join(filter(None, (request_id.get()[:60], uuid.uuid4().hex)))
        waiting = answer or asyncio.get_running_loop().create_future()
        self._replies[identity] = waiting
        try:
            await self.send({**message, "request_id": identity})
            async with asyncio.timeout(ANSWER_SECONDS):
                told: dict[str, Any] = await waiting
            return told
        finally:
            self._replies.pop(identity, None)

    async def do(self, request: Mapping[str, object], step: Status) -> None:
        async with self._work:
            await self._connected()
            waiting = asyncio.ensure_future(self.reach(step))
            await asyncio.sleep(0)
            try:
                await self.send(request)
                await waiting
            finally:
                waiting.cancel()

    async def reach(self, step: Status) -> None:
        """Wait for a status. Raises the error that comes instead."""
        self._awaited = step
        self._step = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._step
        finally:
            self._step = None

    def check_running(self) -> None:
        if self.state != "running":
            if self._ending is not None:
                raise self._ending.error(f"the sandbox is {self.state}")
            raise Conflict(
                f"the sandbox is {self.state}", hint="attach to it, or create another one"
            )

    # -- hearing

    async def _read(self) -> None:
        try:
            await self._hear_all()
        except HoldfastError as error:
            self._give_up(error)
        except Exception as error:  # noqa: BLE001  told to all who wait, who would wait for ever
            self._give_up(HoldfastError(f"the server cannot be understood: {error!r:.200}"))

    async def _hear_all(self) -> None:
        while True:
            while self.link is not None and (message := await self.link.receive()) is not None:
                await self._hear(message)
            if not await self._found_again():
                break
        self._give_up(
            Unreachable(
                "the connection to the server ended",
                hint="attach goes on if the sandbox is still there",
            )
        )

    async def _found_again(self) -> bool:
        """After the connection broke: whether there is a new one."""
        if not self._armed or not self.reconnects or self.state != "running":
            return False
        self._whole.clear()
        self._interrupt(
            Unreachable(
                "the connection broke before the answer came",
                hint="it may have been done or not; the sandbox itself goes on",
            )
        )
        for seconds in pauses(RECONNECT_SECONDS):
            await pause(seconds)
            try:
                self.link = await Link.open(self.attach_address(), self._token, self._cookies)
            except Unreachable:
                continue
            except HoldfastError as error:
                self._give_up(error)
                return False
            first = await self.link.receive()
            while first is not None and status_of(first) in ON_THE_WAY:
                first = await self.link.receive()
            if first is None or status_of(first) is Status.IN_USE:
                continue  # the server has not noticed yet that the old one is gone
            await self._hear(first)
            if self._is_armed():
                try:
                    await self._go_on(self.link)
                except Unreachable:
                    continue  # it broke again at once
                self._whole.set()
                return True
            return False
        return False

    def _is_armed(self) -> bool:
        return self._armed

    async def _go_on(self, link: Link) -> None:
        """Ask for what was missed. An execution that the server has nothing to tell about ended in
        the moment in which the connection broke."""
        again: dict[str, object] = {"action": "reconnect"}
        if self.foreground is not None:
            again["offset"] = self.foreground.offset
        if self.beside:
            again["offsets"] = {name: each.offset for name, each in self.beside.items()}
        doubted = [each for each in (self.foreground, *self.beside.values()) if each is not None]
        for process in doubted:
            process.confirmed = False
            await link.send(process.window())
        asyncio.get_running_loop().call_later(CONFIRM_SECONDS, self._end_unconfirmed, doubted)
        await link.send(again)

    def _end_unconfirmed(self, doubted: list[Process]) -> None:
        """The server would have spoken of those that it still knows."""
        for process in doubted:
            if process.confirmed or process.exit is not None:
                continue
            if process is self.foreground:
                self.foreground = None
            self.beside = {name: each for name, each in self.beside.items() if each != process}
            process.end(
                Unreachable(
                    "the connection broke when the process ended",
                    hint="how it ended is not known, nor whether this is all it wrote",
                )
            )

    async def _hear(self, message: Mapping[str, Any]) -> None:
        event = message.get("event")
        identity = message.get("process_id")
        process = self.foreground if identity is None else self.beside.get(identity)
        if event == "status_update":
            self._hear_status(status_of(message), str(message.get("message", "")))
        elif event == "sandbox_id":
            self.sandbox_id = str(message["sandbox_id"])
            self.sandbox_token = str(message["sandbox_token"])
        elif event == "started" and process is not None and identity is not None:
            process.confirmed = True
            self._answer(message)
        elif event in ("stdout", "stderr") and process is not None:
            flooded = process.heard(message)
            while flooded is not None and flooded.full:  # all we can do is to take nothing more
                await asyncio.sleep(0.01)
        elif event == "exit" and process is not None:
            process.left(Exit(message.get("code"), message.get("signal"), message.get("reason")))
            if identity is not None:
                self._end(process)
                self.beside.pop(identity, None)
        elif event == "error":
            self._hear_error(message)
        elif message.get("request_id") in self._replies:
            self._answer(message)
        if event == "checkpoint":
            fields = CheckpointInfo.__slots__
            self.told = CheckpointInfo(**{n: message[n] for n in fields if n in message})

    def _hear_status(self, status: Status | None, text: str) -> None:
        if status is None:
            return  # newer than we are
        if self._on_status is not None:
            self._on_status(status.name, text)
        self._follow_end(status)
        if status is Status.RUNNING:
            self._armed = True
        elif status in DISARMING:
            self._armed = False
        if status is Status.EXECUTION_RUNNING:
            if self.foreground is not None:
                self.foreground.confirmed = True
            if self._begun is not None and not self._begun.done():
                self._begun.set_result(None)
        elif status is Status.EXECUTION_DONE and self.foreground is not None:
            process, self.foreground = self.foreground, None
            self._end(process)
        elif status is Status.EXECUTION_FORCE_KILLED and self.foreground is not None:
            self.foreground.killed()
        elif status is Status.EXECUTION_FORCE_KILL_ERROR and self.foreground is not None:
            self.foreground.spared(text or status.name)
        elif status in FAILED or status in REFUSED:
            self._failed = status
        elif status in (Status.NOT_FOUND, Status.IN_USE):
            told = NotFound if status is Status.NOT_FOUND else Conflict
            self._fail(told(text or status.name))
        if self._step is not None and not self._step.done() and status is self._awaited:
            self._step.set_result(None)

    def _hear_error(self, message: Mapping[str, Any]) -> None:
        made = all_kinds().get(str(message.get("kind")), HoldfastError)
        text = str(message.get("message", "the server failed"))
        hint = message.get("hint")
        error = made(text, hint=hint if isinstance(hint, str) else None)
        error.request_id = usable(message.get("request_id"))
        failed, self._failed = self._failed, None
        waiting = self._replies.get(str(message.get("request_id")))
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
        elif failed in REFUSED and self._begun is not None and not self._begun.done():
            self._begun.set_exception(error)
        elif failed is Status.PERMISSION_DENIAL_ERROR:
            self._fail(Denied(text))
        elif failed in FAILED:
            self._fail(error)
            if failed in FATAL:
                self._give_up(error)

    def _answer(self, message: Mapping[str, Any]) -> None:
        waiting = self._replies.get(str(message.get("request_id")))
        if waiting is not None and not waiting.done():
            waiting.set_result(dict(message))

    def _fail(self, error: HoldfastError) -> None:
        if self._step is not None and not self._step.done():
            self._step.set_exception(error)

    # -- the end

    def _follow_end(self, status: Status) -> None:
        """Know of the end before whoever waits for something hears of it."""
        awaited = self._awaited if self._step is not None else None
        self._ending = announced(self._ending, status, awaited)
        if self._ending is not None and status in OVER and self.state == "running":
            self.state = self._ending.state

    def _end(self, process: Process) -> None:
        """By itself, or with its sandbox."""
        process.end(None if self._ending is None else self._ending.error())

    def _give_up(self, error: HoldfastError) -> None:
        """Nothing more will be heard: tell everybody who waits."""
        ending = self._ending
        if self.state == "running":
            self.state = "lost" if ending is None else ending.state
        self._whole.set()
        self._interrupt(error if ending is None else ending.error("no answer comes"))
        for process in [*self.beside.values(), *([self.foreground] if self.foreground else [])]:
            process.end(error if ending is None else ending.error())
        self.beside.clear()
        self.foreground = None

    def _interrupt(self, error: HoldfastError) -> None:
        """What was asked for will not be answered."""
        self._fail(error)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(error)
        if self._begun is not None and not self._begun.done():
            self._begun.set_exception(error)
