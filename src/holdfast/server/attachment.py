"""A client and the sandbox it is attached to: what each of its requests does there."""

from __future__ import annotations

import logging

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
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.freezing import Captured, StillExecuting
from holdfast.sandbox.live import LiveSandbox
from holdfast.server.connection import Connection
from holdfast.server.executions import Executions
from holdfast.server.files import do_to_files
from holdfast.server.tenants import tenant_of

log = logging.getLogger("holdfast.server")


class Attachment:
    """Serves one client: the fleet's `Client`, as long as it holds a sandbox."""

    def __init__(self, socket: WebSocket, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tenant = tenant_of(socket.scope).name
        self._connection = Connection(socket)
        self.tell, self._say = self._connection.tell, self._connection.say
        self.executions = Executions(self._connection)
        self._sandbox: LiveSandbox | None = None

    # -- one sandbox

    def hold(self, sandbox: LiveSandbox) -> None:
        """This client is the one that is attached. No await before: nobody comes in between."""
        self._sandbox = sandbox
        self._connection.touch = sandbox.touch
        sandbox.client = self
        sandbox.touch()

    def let_go(self) -> None:
        """The sandbox goes on without a client."""
        self.executions.let_go()
        if self._sandbox is not None and self._sandbox.client is self:
            self._sandbox.client = None
            self._sandbox.touch()

    async def serve(self) -> None:
        """Do what the client asks until it goes, or is shown the door."""
        while (frame := await self._connection.hear()) is not None:
            await self._handle(parse_request(frame))

    async def _handle(self, request: Request | Refusal) -> None:
        sandbox = self._sandbox
        if sandbox is None or self._connection.phase is not Phase.OPEN:
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
        await self._say(ForkEvent(event="fork", sandboxes=passes, request_id=request.request_id))

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
