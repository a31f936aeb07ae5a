"""A sandbox from a distance: the Python twin of the TypeScript client."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from holdfast.client.files import Files
from holdfast.client.link import Link, Unreachable, address, pause, pauses
from holdfast.client.process import Exit, Process
from holdfast.model.errors import (
    Conflict,
    Denied,
    HoldfastError,
    NotFound,
    UsageError,
    all_kinds,
)
from holdfast.protocol.sandbox_messages import Status

RECONNECT_SECONDS = 60.0
ANSWER_SECONDS = 600.0
CONFIRM_SECONDS = 5.0
# After these a connection is not looked for again; RUNNING arms it anew.
DISARMING = frozenset(
    {
        Status.ERROR,
        Status.NOT_FOUND,
        Status.CREATION_ERROR,
        Status.CHECKPOINT_ERROR,
        Status.RESTORE_ERROR,
        Status.DELETED,
        Status.LOCK_RENEWAL_ERROR,
        Status.PERMISSION_DENIAL_ERROR,
    }
)
# What an execution's beginning ends in when it fails, and what other work does.
REFUSED = frozenset({Status.EXECUTION_ERROR, Status.EXECUTION_UNSUPPORTED_LANGUAGE_ERROR})
FAILED = frozenset(
    {
        Status.CREATION_ERROR,
        Status.RESTORE_ERROR,
        Status.PERMISSION_DENIAL_ERROR,
        Status.CHECKPOINT_ERROR,
        Status.EXECUTION_IN_PROGRESS_ERROR,
        Status.KILL_ERROR,
        Status.FILESYSTEM_SNAPSHOT_ERROR,
        Status.ERROR,
        Status.LOCK_RENEWAL_ERROR,
    }
)
FATAL = frozenset({Status.ERROR, Status.LOCK_RENEWAL_ERROR})
ON_THE_WAY = frozenset({Status.RESTORING, Status.LOCK_ACQUIRING, Status.LOCK_ACQUIRED})

# Tokens of sandboxes that this program made, so that it can attach by the id alone.
_remembered: dict[str, str] = {}

State = Literal["running", "checkpointed", "killed", "lost", "detached"]


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint that is durable."""

    id: str
    short: str = ""
    subject: str = ""
    size_bytes: int = 0
    stored_bytes: int = 0
    pause_ms: float = 0.0


class Sandbox:
    """A sandbox on a server. Leaving its `async with` block detaches; `kill()` ends it."""

    def __init__(self, url: str, token: str | None, on_status: Callable[[str, str], None] | None):
        self._url = url
        self._token = token
        self._on_status = on_status
        self._link: Link | None = None
        self._reader: asyncio.Task[None] | None = None
        self._foreground: Process | None = None
        self._beside: dict[str, Process] = {}
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._step: asyncio.Future[None] | None = None  # what the work under way waits for
        self._awaited = Status.RUNNING
        self._failed: Status | None = None  # a failure whose error event comes next
        self._told: CheckpointInfo | None = None
        self._begun: asyncio.Future[None] | None = None
        self._work = asyncio.Lock()
        self._armed = False
        self._reconnect = True
        self.sandbox_id = ""
        self.sandbox_token = ""
        self.state: State = "running"
        self.files = Files(self.ask)

    # -- coming and going

    @classmethod
    async def create(
        cls,
        url: str,
        *,
        token: str | None = None,
        enable_checkpoint: bool = False,
        enable_idle_timeout_auto_checkpoint: bool = False,
        enable_sandbox_handoff: bool = False,
        enable_auto_reconnect: bool = True,
        filesystem_snapshot_name: str | None = None,
        idle_timeout: float | None = None,
        limits: Mapping[str, float] | None = None,
        network: bool = False,
        image: str | None = None,
        on_status: Callable[[str, str], None] | None = None,
    ) -> Self:
        """A new sandbox. Raises HoldfastError of the kind that the server gave."""
        wanted = {
            "enable_checkpoint": enable_checkpoint,
            "enable_idle_timeout_auto_checkpoint": enable_idle_timeout_auto_checkpoint,
            "enable_sandbox_handoff": enable_sandbox_handoff,
            "filesystem_snapshot_name": filesystem_snapshot_name,
            "idle_timeout": idle_timeout,
            "limits": None if limits is None else dict(limits),
            "network": network,
            "image": image,
        }
        sandbox = cls(url, token, on_status)
        sandbox._reconnect = enable_auto_reconnect
        sandbox._link = await Link.open(address(url, "/create"), token)
        await sandbox._link.send({name: value for name, value in wanted.items() if value})
        await sandbox._opened()
        _remembered[sandbox.sandbox_id] = sandbox.sandbox_token
        return sandbox

    @classmethod
    async def attach(
        cls,
        url: str,
        sandbox_id: str,
        sandbox_token: str | None = None,
        *,
        token: str | None = None,
        enable_auto_reconnect: bool = True,
        on_status: Callable[[str, str], None] | None = None,
    ) -> Self:
        """Go back to a sandbox, which is restored where it was frozen. The sandbox's token may be
        left out for one that this program made. Raises NotFound, Denied, Conflict (in use)..."""
        known = sandbox_token or _remembered.get(sandbox_id)
        if known is None:
            raise UsageError(
                f"the token of sandbox {sandbox_id} is not known here", hint="give sandbox_token"
            )
        sandbox = cls(url, token, on_status)
        sandbox._reconnect = enable_auto_reconnect
        sandbox.sandbox_id, sandbox.sandbox_token = sandbox_id, known
        sandbox._link = await Link.open(sandbox._attach_address(), token)
        await sandbox._opened()
        return sandbox

    def _attach_address(self) -> str:
        return address(self._url, f"/attach/{self.sandbox_id}", sandbox_token=self.sandbox_token)

    async def _opened(self) -> None:
        """Read until the sandbox runs, or the reason why it does not."""
        self._reader = asyncio.create_task(self._read(), name="holdfast sandbox")
        try:
            await self._reach(Status.RUNNING)
        except BaseException:
            await self._close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.detach()

    async def detach(self) -> None:
        """Leave the sandbox as it is; it goes on, until it is idle for too long."""
        if self.state == "running":
            self.state = "detached"
        await self._close()

    async def _close(self) -> None:
        self._armed = False
        if self._link is not None:
            await self._link.close()
        if self._reader is not None and self._reader is not asyncio.current_task():
            await asyncio.gather(self._reader, return_exceptions=True)

    def __repr__(self) -> str:
        return f"<Sandbox {self.sandbox_id or '(new)'} {self.state}>"

    # -- running

    async def exec(
        self,
        language: str | None = None,
        code: str | None = None,
        *,
        argv: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        pty: bool = False,
        rows: int = 24,
        columns: int = 80,
        binary: bool = False,
        session: bool = False,
    ) -> Process:
        """Run code in a language, or a program by its arguments; several may run at once. With
        `session`, python code runs in an interpreter that keeps its variables."""
        self._check_running()
        message: dict[str, object] = {"language": language, "code": code, "cwd": cwd}
        message["argv"] = None if argv is None else list(argv)
        message["env"] = dict(env or {})
        if pty:
            message.update(pty=True, rows=rows, columns=columns)
        if binary:
            message["encoding"] = "base64"
        if session:
            message["session"] = True
        message = {name: value for name, value in message.items() if value not in (None, {})}
        if self._foreground is not None:
            identity = uuid.uuid4().hex
            process = self._beside[identity] = Process(self, identity, binary)
            try:
                await self.ask({**message, "process_id": identity})
            except BaseException:
                self._beside.pop(identity, None)
                raise
            return process
        process = self._foreground = Process(self, None, binary)
        self._begun = asyncio.get_running_loop().create_future()
        try:
            await self.send(message)
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._begun
        except BaseException:
            self._foreground = None
            raise
        finally:
            self._begun = None
        return process

    # -- the verbs

    async def checkpoint(
        self,
        reason: str = "checkpoint",
        *,
        leave_running: bool = False,
        during_execution: bool = False,
    ) -> CheckpointInfo:
        """Freeze it; durable when this returns. Unless it is left running, this object is at its
        end: attach to go on."""
        request: dict[str, object] = {"action": "checkpoint", "reason": reason}
        if leave_running:
            request["leave_running"] = True
        if during_execution:
            request["during_execution"] = True
        self._told = None
        await self._do(request, Status.CHECKPOINTED)
        if not leave_running:
            self.state = "checkpointed"
            await self._close()
        return self._heard_of()

    def _heard_of(self) -> CheckpointInfo:
        """What the server told; a server that is not ours may tell nothing."""
        return self._told or CheckpointInfo(id="")

    async def snapshot_filesystem(self, name: str) -> None:
        """Keep its files under a name, for `create(filesystem_snapshot_name=...)`."""
        request = {"action": "snapshot_filesystem", "name": name}
        await self._do(request, Status.FILESYSTEM_SNAPSHOT_CREATED)

    async def fork(self, count: int = 1) -> list[Self]:
        """Isolated live copies, attached."""
        told = await self.ask({"action": "fork", "count": count})
        copies = []
        for each in told["sandboxes"]:
            _remembered[each["sandbox_id"]] = each["sandbox_token"]
            copies.append(
                await type(self).attach(
                    self._url, each["sandbox_id"], each["sandbox_token"], token=self._token
                )
            )
        return copies

    async def rollback(self, checkpoint: CheckpointInfo | str | None = None) -> str:
        """Go back to a checkpoint of this sandbox, by default the one before the last."""
        which = checkpoint.id if isinstance(checkpoint, CheckpointInfo) else checkpoint
        told = await self.ask({"action": "rollback", "checkpoint": which})
        return str(told["checkpoint"])

    async def kill(self) -> None:
        """End the sandbox."""
        await self._do({"action": "kill_sandbox"}, Status.KILLED)
        self.state = "killed"
        await self._close()

    # -- asking and being told

    async def send(self, message: Mapping[str, object]) -> None:
        self._check_running()
        if self._link is None:
            raise Unreachable("there is no connection")
        await self._link.send(message)

    async def ask(self, message: Mapping[str, object]) -> dict[str, Any]:
        """Send a request and wait for the event that answers it. Raises what the server says."""
        identity = uuid.uuid4().hex
        waiting = self._replies[identity] = asyncio.get_running_loop().create_future()
        try:
            await self.send({**message, "request_id": identity})
            async with asyncio.timeout(ANSWER_SECONDS):
                told: dict[str, Any] = await waiting
            return told
        finally:
            self._replies.pop(identity, None)

    async def _do(self, request: Mapping[str, object], step: Status) -> None:
        async with self._work:
            self._check_running()
            waiting = asyncio.ensure_future(self._reach(step))
            await asyncio.sleep(0)
            try:
                await self.send(request)
                await waiting
            finally:
                waiting.cancel()

    async def _reach(self, step: Status) -> None:
        """Wait for a status. Raises the error that comes instead."""
        self._awaited = step
        self._step = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._step
        finally:
            self._step = None

    def _check_running(self) -> None:
        if self.state != "running":
            raise Conflict(
                f"the sandbox is {self.state}", hint="attach to it, or create another one"
            )

    # -- hearing

    async def _read(self) -> None:
        while True:
            while self._link is not None and (message := await self._link.receive()) is not None:
                await self._hear(message)
            if not await self._found_again():
                break
        self._give_up(Unreachable("the connection to the server ended"))

    async def _found_again(self) -> bool:
        """After the connection broke: whether there is a new one."""
        if not self._armed or not self._reconnect or self.state != "running":
            return False
        for seconds in pauses(RECONNECT_SECONDS):
            await pause(seconds)
            try:
                self._link = await Link.open(self._attach_address(), self._token)
            except Unreachable:
                continue
            except HoldfastError as error:
                self._give_up(error)
                return False
            first = await self._link.receive()
            while first is not None and _status(first) in ON_THE_WAY:
                first = await self._link.receive()
            if first is None or _status(first) is Status.IN_USE:
                continue  # the server has not noticed yet that the old one is gone
            await self._hear(first)
            if self._is_armed():
                await self._go_on(self._link)
                return True
            return False
        return False

    def _is_armed(self) -> bool:
        return self._armed

    async def _go_on(self, link: Link) -> None:
        """Ask for what was missed. An execution that the server has nothing to tell about ended in
        the moment in which the connection broke."""
        again: dict[str, object] = {"action": "reconnect"}
        if self._foreground is not None:
            again["offset"] = self._foreground.offset
        if self._beside:
            again["offsets"] = {name: each.offset for name, each in self._beside.items()}
        doubted = [each for each in (self._foreground, *self._beside.values()) if each is not None]
        for process in doubted:
            process.confirmed = False
        asyncio.get_running_loop().call_later(CONFIRM_SECONDS, self._end_unconfirmed, doubted)
        await link.send(again)

    def _end_unconfirmed(self, doubted: list[Process]) -> None:
        """The server would have spoken of those that it still knows."""
        for process in doubted:
            if process.confirmed or process.exit is not None:
                continue
            if process is self._foreground:
                self._foreground = None
            self._beside = {name: each for name, each in self._beside.items() if each != process}
            process.end(Exit(reason="the connection broke when it ended"))

    async def _hear(self, message: Mapping[str, Any]) -> None:
        event = message.get("event")
        identity = message.get("process_id")
        process = self._foreground if identity is None else self._beside.get(identity)
        if event == "status_update":
            self._hear_status(_status(message), str(message.get("message", "")))
        elif event == "sandbox_id":
            self.sandbox_id = str(message["sandbox_id"])
            self.sandbox_token = str(message["sandbox_token"])
        elif event == "started" and process is not None and identity is not None:
            process.confirmed = True
            self._answer(message)
        elif event in ("stdout", "stderr") and process is not None:
            stream = process.heard(message)
            while stream.full:  # slow down: the server, and so the program, will wait
                await asyncio.sleep(0.01)
        elif event == "exit" and process is not None:
            process.left(Exit(message.get("code"), message.get("signal"), message.get("reason")))
            if identity is not None:
                process.end()
                self._beside.pop(identity, None)
        elif event == "error":
            self._hear_error(message)
        elif message.get("request_id") in self._replies:
            self._answer(message)
        if event == "checkpoint":
            fields = CheckpointInfo.__slots__
            self._told = CheckpointInfo(**{n: message[n] for n in fields if n in message})

    def _hear_status(self, status: Status | None, text: str) -> None:
        if status is None:
            return  # newer than we are
        if self._on_status is not None:
            self._on_status(status.name, text)
        if status is Status.RUNNING:
            self._armed = True
        elif status in DISARMING:
            self._armed = False
        if status is Status.EXECUTION_RUNNING:
            if self._foreground is not None:
                self._foreground.confirmed = True
            if self._begun is not None and not self._begun.done():
                self._begun.set_result(None)
        elif status is Status.EXECUTION_DONE and self._foreground is not None:
            process, self._foreground = self._foreground, None
            process.end()
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

    def _give_up(self, error: HoldfastError) -> None:
        """Nothing more will be heard: tell everybody who waits."""
        if self.state == "running":
            self.state = "lost"
        self._fail(error)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(error)
        if self._begun is not None and not self._begun.done():
            self._begun.set_exception(error)
        for process in [*self._beside.values(), *([self._foreground] if self._foreground else [])]:
            process.end(Exit(reason=str(error)))
        self._beside.clear()
        self._foreground = None


def _status(message: Mapping[str, Any]) -> Status | None:
    try:
        return Status(str(message.get("status", "")))
    except ValueError:
        return None
