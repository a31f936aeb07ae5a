"""A client and the sandbox it is attached to: what each of its requests does there."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from starlette.websockets import WebSocket

from holdfast.model import tracing
from holdfast.model.errors import Conflict, HoldfastError, Unsupported
from holdfast.model.tracing import span
from holdfast.protocol.sandbox_flow import Fact, Phase, error_event
from holdfast.protocol.sandbox_messages import (
    CheckpointEvent,
    CheckpointRequest,
    ExecuteRequest,
    FilesRequest,
    ForkEvent,
    ForkRequest,
    KillProcessRequest,
    KillSandboxRequest,
    ReconnectRequest,
    ResizeRequest,
    RollbackEvent,
    RollbackRequest,
    SandboxPass,
    SaveTemplateRequest,
    SnapshotEvent,
    SnapshotRequest,
    StdinEvent,
    TemplateEvent,
    WindowRequest,
)
from holdfast.protocol.sandbox_requests import Refusal, Request, parse_request
from holdfast.sandbox import owning
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.freezing import Captured, StillExecuting
from holdfast.sandbox.live import LiveSandbox
from holdfast.server.connection import Connection
from holdfast.server.executions import Executions
from holdfast.server.files import do_to_files
from holdfast.server.tenants import tenant_of

log = logging.getLogger("holdfast.server")
MOST_WAITING = 8  # requests behind one that takes its time; the next one is not read before
MOMENT_SECONDS = 0.05  # between two looks whether the moment of a checkpoint has passed
# What acts on programs that run, and is over at once.
_HURRIED = (KillProcessRequest, StdinEvent, ResizeRequest, WindowRequest)


class Attachment:
    """Serves one client: the fleet's `Client`, as long as it holds a sandbox."""

    def __init__(self, socket: WebSocket, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tenant = tenant_of(socket.scope).name
        self._connection = Connection(socket)
        self.tell, self._say = self._connection.tell, self._connection.say
        self.tell_of_others = self._connection.tell_of_others
        self.executions = Executions(self._connection)
        self._sandbox: LiveSandbox | None = None
        self._hearing: asyncio.Task[str | bytes | None] | None = None
        self._waiting: deque[Request | Refusal] = deque()  # heard, and not done yet

    # -- one sandbox

    def hold(self, sandbox: LiveSandbox) -> None:
        """This client is the one that is attached. No await before: nobody comes in between."""
        self._sandbox = sandbox
        self._connection.touch = sandbox.touch
        sandbox.client = self
        sandbox.touch()

    @property
    def gone(self) -> bool:
        """Whether nothing more can be said."""
        return self._connection.closed.is_set()

    def let_go(self) -> None:
        """The sandbox goes on without a client."""
        if self._hearing is not None:
            self._hearing.cancel()
        self.executions.let_go()
        if self._sandbox is not None and self._sandbox.client is self:
            self._sandbox.client = None
            self._sandbox.touch()

    async def serve(self) -> None:
        """Do what the client asks, one after the other, until it goes or is shown the door."""
        while (request := await self._next()) is not None:
            if _takes_time(request):
                await self._meanwhile(request)
            else:
                await self._handle(request)

    async def _next(self) -> Request | Refusal | None:
        if self._waiting:
            return self._waiting.popleft()
        if self._hearing is None:
            frame = await self._connection.hear()
        else:
            frame = await self._hearing
            self._hearing = None
        return None if frame is None else parse_request(frame)

    async def _meanwhile(self, request: Request | Refusal) -> None:
        """Do what takes its time. Input for programs and their end do not wait for it: they come
        behind the moment that is kept, and not behind the store that keeps it."""
        began = (
            None
            if isinstance(request, FilesRequest) or self._sandbox is None
            else (self._sandbox.epoch)
        )
        work = asyncio.create_task(self._handle(request))
        try:
            while not work.done() and len(self._waiting) < MOST_WAITING:
                self._hearing = self._hearing or asyncio.create_task(self._connection.hear())
                hurried = self._waiting and isinstance(self._waiting[0], _HURRIED)
                await asyncio.wait(
                    {work, self._hearing},
                    return_when=asyncio.FIRST_COMPLETED,
                    timeout=MOMENT_SECONDS if hurried else None,
                )
                if self._hearing.done():
                    if (frame := self._hearing.result()) is None:
                        break  # it has left, or was shown the door
                    self._hearing = None
                    self._waiting.append(parse_request(frame))
                while self._waiting and not work.done() and self._may_overtake(began):
                    await self._handle(self._waiting.popleft(), overtakes=True)
            await work
        except BaseException:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise

    def _may_overtake(self, began: int | None) -> bool:
        """Whether the first of those that wait need not wait for the work under way; `began` is the
        sandbox's epoch at its begin, if it keeps a moment of the sandbox."""
        sandbox, phase = self._sandbox, self._connection.phase
        if sandbox is None or phase not in (Phase.OPEN, Phase.CHECKPOINTING):
            return False
        return isinstance(self._waiting[0], _HURRIED) and sandbox.epoch != began

    async def _handle(self, request: Request | Refusal, *, overtakes: bool = False) -> None:
        sandbox = self._sandbox
        kept = overtakes and self._connection.phase is Phase.CHECKPOINTING  # it goes on
        if sandbox is None or not (kept or self._connection.phase is Phase.OPEN):
            return  # it is being taken away; the client has been told
        if isinstance(request, Refusal):
            if request.fact is None:
                await self._say(error_event(request.error, request.request_id))
            else:
                await self.tell(request.fact, error=request.error, request_id=request.request_id)
            return
        verb = type(request).__name__.removesuffix("Request").removesuffix("Event").lower()
        with tracing.request(request.request_id), span(f"sandbox.{verb}", sandbox=sandbox.identity):
            log.info("%s", verb, extra={"sandbox": sandbox.identity})
            try:
                await self._act(sandbox, request)
            except HoldfastError as error:
                await self._say(error_event(error, request.request_id))

    async def _act(self, sandbox: LiveSandbox, request: Request) -> None:
        match request:
            case ExecuteRequest():
                await self.executions.begin(sandbox, request)
            case StdinEvent():
                await self.executions.give_input(sandbox, request)
            case KillProcessRequest():
                await self.executions.kill(sandbox, request)
            case KillSandboxRequest():
                await self._kill_sandbox(sandbox, request)
            case CheckpointRequest():
                await self._checkpoint(sandbox, request)
            case SnapshotRequest():
                await self._snapshot(sandbox, request)
            case SaveTemplateRequest():
                made = await self._fleet.templates.save(sandbox, request.name, self._tenant)
                await self._say(
                    TemplateEvent(
                        event="template",
                        name=request.name,
                        checkpoint=made.id,
                        request_id=request.request_id,
                    )
                )
            case ReconnectRequest():
                await self.tell(Fact.RECONNECTED)
                await self.executions.catch_up(sandbox, request.offset, request.offsets)
            case ResizeRequest():
                execution = sandbox.find(request.process_id)
                execution.process.resize(request.rows, request.columns)
            case WindowRequest():
                self.executions.widen(sandbox, request)
            case ForkRequest():
                await self._fork(sandbox, request)
            case RollbackRequest():
                await self._rollback(sandbox, request)
            case FilesRequest():
                await self._say(await do_to_files(sandbox.files, request))

    # -- the sandbox as a whole

    async def _kill_sandbox(self, sandbox: LiveSandbox, request: KillSandboxRequest) -> None:
        await self.tell(Fact.KILL_BEGUN)
        try:
            await self._fleet.exits.kill(sandbox, self.tell)
        except HoldfastError as error:
            await self.tell(
                Fact.KILL_FAILED, str(error), error=error, request_id=request.request_id
            )
            return
        await self.tell(Fact.KILLED)

    async def _checkpoint(self, sandbox: LiveSandbox, request: CheckpointRequest) -> None:
        await self.tell(Fact.CHECKPOINT_BEGUN)
        try:
            if not sandbox.request.enable_checkpoint:
                raise Unsupported(
                    "checkpoints are not enabled for this sandbox",
                    hint="create it with enable_checkpoint",
                )
            if request.leave_running:
                captured = await self._fleet.freezer.checkpoint(
                    sandbox, reason=request.reason, during_execution=request.during_execution
                )
            else:
                captured = await self._fleet.exits.put_away(
                    sandbox,
                    self.tell,
                    reason=request.reason,
                    during_execution=request.during_execution,
                )
        except (Conflict, StillExecuting) as error:
            await self.tell(
                Fact.CHECKPOINT_REFUSED, str(error), error=error, request_id=request.request_id
            )
            return
        except HoldfastError as error:
            log.warning("no checkpoint of sandbox %s: %s", sandbox.identity, error)
            await self.tell(
                Fact.CHECKPOINT_FAILED, str(error), error=error, request_id=request.request_id
            )
            return
        await self._say(checkpoint_event(captured, request.request_id))
        await self.tell(Fact.CHECKPOINTED_RUNNING if request.leave_running else Fact.CHECKPOINTED)

    async def _snapshot(self, sandbox: LiveSandbox, request: SnapshotRequest) -> None:
        await self.tell(Fact.SNAPSHOT_BEGUN)
        try:
            made = await self._fleet.freezer.snapshot(sandbox, request.name, self._tenant)
        except HoldfastError as error:
            await self.tell(
                Fact.SNAPSHOT_FAILED, str(error), error=error, request_id=request.request_id
            )
            return
        await self._say(
            SnapshotEvent(
                event="snapshot",
                name=request.name,
                checkpoint=made.id,
                request_id=request.request_id,
            )
        )
        await self.tell(Fact.SNAPSHOT_DONE)

    async def _fork(self, sandbox: LiveSandbox, request: ForkRequest) -> None:
        copies = await self._fleet.fork(sandbox, request.count)
        passes = tuple(
            SandboxPass(sandbox_id=copy.identity, sandbox_token=token) for copy, token in copies
        )
        told = ForkEvent(event="fork", sandboxes=passes, request_id=request.request_id)
        if not await self._say(told):
            for copy, _ in copies:  # nobody has their tokens, or ever will
                await self._fleet.exits.kill(copy, owning.silence)

    async def _rollback(self, sandbox: LiveSandbox, request: RollbackRequest) -> None:
        await self.executions.follow_none()
        try:
            target = await self._fleet.rollback(sandbox, request.checkpoint)
        except HoldfastError:
            self.executions.follow_all(sandbox)
            raise
        await self._tell_of_rollback(sandbox, target.id, request.request_id)

    async def went_back(self, sandbox: LiveSandbox, checkpoint: str) -> None:
        """Somebody else has taken it there."""
        await self.executions.follow_none()
        await self._tell_of_rollback(sandbox, checkpoint, None)

    async def _tell_of_rollback(
        self, sandbox: LiveSandbox, checkpoint: str, request_id: str | None
    ) -> None:
        if self._connection.executing and sandbox.foreground is None:
            await self.tell(Fact.EXECUTION_ENDED)
        await self._say(
            RollbackEvent(event="rollback", checkpoint=checkpoint, request_id=request_id)
        )
        await self.executions.catch_up(sandbox)


def _takes_time(request: Request | Refusal) -> bool:
    """Whether it may take long, and leaves the sandbox running."""
    if isinstance(request, CheckpointRequest):
        return request.leave_running
    return isinstance(request, SnapshotRequest | SaveTemplateRequest | ForkRequest | FilesRequest)


def checkpoint_event(captured: Captured, request_id: str | None) -> CheckpointEvent:
    made = captured.checkpoint
    return CheckpointEvent(
        event="checkpoint",
        id=made.id,
        short=made.short,
        subject=str(made.subject),
        size_bytes=made.size_bytes,
        stored_bytes=made.stored_bytes,
        pause_ms=round(captured.pause_ms, 1),
        request_id=request_id,
    )
