"""One client and its sandbox: frames in, facts and events out, until one of them goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from holdfast.model import tracing
from holdfast.model.errors import Conflict, HoldfastError, NotFound, Unsupported
from holdfast.model.tracing import span
from holdfast.protocol.sandbox_flow import Conversation, Fact, Phase, encode, error_event
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
    SandboxIdEvent,
    SandboxPass,
    SaveTemplateRequest,
    SnapshotEvent,
    SnapshotRequest,
    StartedEvent,
    StdinEvent,
    TemplateEvent,
)
from holdfast.protocol.sandbox_requests import Refusal, Request, parse_request
from holdfast.sandbox.execution import Execution
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.freezing import Captured, StillExecuting
from holdfast.sandbox.live import LiveSandbox
from holdfast.server.files import data_of, do_to_files

log = logging.getLogger("holdfast.server")
# A client that comes back says `reconnect` at once; one that is new here never does.
RECONNECT_SECONDS = 1.0
MOST_INPUT = 16 << 20  # that a program has not read yet
SEND_SECONDS = 60.0  # a client that takes nothing for so long is gone


class Connection:
    """What a client is told, and what it asks for."""

    def __init__(self, socket: WebSocket, fleet: Fleet) -> None:
        self._socket = socket
        self._fleet = fleet
        self._conversation = Conversation()
        self._sending = asyncio.Lock()
        self._followers: dict[Execution, asyncio.Task[None]] = {}
        self._inputs: dict[Execution, _Input] = {}
        self._reconnecting: asyncio.TimerHandle | None = None
        self._sandbox: LiveSandbox | None = None
        self.closed = asyncio.Event()

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
            if self._conversation.phase is Phase.CLOSED:
                return
            frames = self._conversation.tell(
                fact, message, error=error, identity=identity, request_id=request_id
            )
            for frame in frames:
                await self._put(frame)
            if self._conversation.close is not None:
                await self._shut(self._conversation.close)

    async def say(self, event: msgspec.Struct) -> None:
        async with self._sending:
            if self._conversation.phase is not Phase.CLOSED:
                await self._put(encode(event))

    async def _put(self, frame: bytes) -> None:
        if self.closed.is_set():
            return
        if self._sandbox is not None:
            self._sandbox.touch()
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._socket.send_text(frame.decode())
        except (WebSocketDisconnect, RuntimeError, OSError, TimeoutError):
            self.closed.set()

    async def _shut(self, code: int) -> None:
        if not self.closed.is_set():
            with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
                await self._socket.close(code)
            self.closed.set()

    # -- one sandbox

    def hold(self, sandbox: LiveSandbox) -> None:
        """This client is the one that is attached. No await before: nobody comes in between."""
        self._sandbox = sandbox
        sandbox.client = self
        sandbox.touch()

    def let_go(self) -> None:
        """The sandbox goes on without a client."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        for execution, task in self._followers.items():
            task.cancel()
            execution.process.follower = False
            execution.process.consumed()
        for each in self._inputs.values():
            each.task.cancel()
        self._followers.clear()
        self._inputs.clear()
        if self._sandbox is not None and self._sandbox.client is self:
            self._sandbox.client = None
            self._sandbox.touch()

    async def serve(self) -> None:
        """Do what the client asks until it goes, or is shown the door."""
        while not self.closed.is_set():
            reading = asyncio.ensure_future(self._read())
            ending = asyncio.ensure_future(self.closed.wait())
            done, pending = await asyncio.wait(
                {reading, ending}, return_when=asyncio.FIRST_COMPLETED
            )
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            if reading not in done or (frame := reading.result()) is None:
                return
            if self._sandbox is not None:
                self._sandbox.touch()
            await self._handle(parse_request(frame))

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

    async def _handle(self, request: Request | Refusal) -> None:
        sandbox = self._sandbox
        if sandbox is None or self._conversation.phase is not Phase.OPEN:
            return  # it is being taken away; the client has been told
        if isinstance(request, Refusal):
            if request.fact is None:
                await self.say(error_event(request.error, request.request_id))
            else:
                await self.tell(request.fact, error=request.error, request_id=request.request_id)
            return
        verb = type(request).__name__.removesuffix("Request").removesuffix("Event").lower()
        with tracing.request(request.request_id), span(f"sandbox.{verb}", sandbox=sandbox.identity):
            log.info("%s", verb, extra={"sandbox": sandbox.identity})
            try:
                await self._act(sandbox, request)
            except HoldfastError as error:
                await self.say(error_event(error, request.request_id))

    async def _act(self, sandbox: LiveSandbox, request: Request) -> None:
        match request:
            case ExecuteRequest():
                await self._execute(sandbox, request)
            case StdinEvent():
                await self._input(sandbox, request)
            case KillProcessRequest():
                await self._kill_process(sandbox, request)
            case KillSandboxRequest():
                await self._kill_sandbox(sandbox)
            case CheckpointRequest():
                await self._checkpoint(sandbox, request)
            case SnapshotRequest():
                await self._snapshot(sandbox, request)
            case SaveTemplateRequest():
                made = await self._fleet.templates.save(sandbox, request.name)
                await self.say(
                    TemplateEvent(
                        event="template",
                        name=request.name,
                        checkpoint=made.id,
                        request_id=request.request_id,
                    )
                )
            case ReconnectRequest():
                await self._reconnect(sandbox, request)
            case ResizeRequest():
                execution = sandbox.find(request.process_id)
                execution.process.resize(request.rows, request.columns)
            case ForkRequest():
                await self._fork(sandbox, request)
            case RollbackRequest():
                await self._rollback(sandbox, request)
            case FilesRequest():
                await self.say(await do_to_files(sandbox.files, request))

    # -- executions

    async def _execute(self, sandbox: LiveSandbox, request: ExecuteRequest) -> None:
        try:
            if request.process_id is None and self._conversation.executing:
                raise Conflict("an execution is running", hint="wait for it, or give a process_id")
            execution = await sandbox.execute(request)
        except HoldfastError as error:
            if request.process_id is None:
                await self.tell(
                    Fact.EXECUTION_REFUSED, str(error), error=error, request_id=request.request_id
                )
                return
            told = error_event(error, request.request_id)
            await self.say(msgspec.structs.replace(told, process_id=request.process_id))
            return
        if request.process_id is None:
            await self.tell(Fact.EXECUTION_BEGUN)
        else:
            await self.say(
                StartedEvent(
                    event="started", process_id=request.process_id, request_id=request.request_id
                )
            )
        self._follow(sandbox, execution)

    def _follow(self, sandbox: LiveSandbox, execution: Execution) -> None:
        execution.process.follower = True
        self._followers[execution] = asyncio.create_task(self._pass_on(sandbox, execution))

    async def _pass_on(self, sandbox: LiveSandbox, execution: Execution) -> None:
        """Output as it comes, then the end; the process waits for a client that is slow."""
        process = execution.process
        while True:
            ended = process.exit is not None
            for piece in execution.pieces():
                await self.say(execution.event(piece))
                execution.sent = piece.offset
            process.consumed()
            if ended:
                break
            if execution.sent >= process.replay.end and process.exit is None:
                await process.changed()
        await execution.tellable.wait()
        if self.closed.is_set() or sandbox.away:
            return
        await self.say(execution.exit_event())
        if execution.process_id is None:
            await self.tell(Fact.EXECUTION_ENDED)
        if not self.closed.is_set():
            sandbox.forget(execution)
        self._followers.pop(execution, None)
        if execution in self._inputs:
            self._inputs.pop(execution).task.cancel()

    async def _input(self, sandbox: LiveSandbox, request: StdinEvent) -> None:
        try:
            execution = sandbox.find(request.process_id)
            given = self._inputs.get(execution)
            if given is None:
                given = self._inputs[execution] = _Input(execution)
            given.add(data_of(request.data or "", request.encoding), request.eof)
        except HoldfastError as error:
            await self.tell(
                Fact.STDIN_REFUSED, str(error), error=error, request_id=request.request_id
            )

    async def _kill_process(self, sandbox: LiveSandbox, request: KillProcessRequest) -> None:
        if request.process_id is not None:
            await sandbox.find(request.process_id).kill()
            return
        try:
            execution = sandbox.find(None)
        except NotFound:
            await self.tell(Fact.PROCESS_KILLED)  # nothing was running: so it is
            return
        execution.tellable.clear()
        try:
            await execution.kill()
            await self.tell(Fact.PROCESS_KILLED)
        except HoldfastError as error:
            if self._conversation.phase is Phase.OPEN:  # or it is taken away, with what runs
                await self.tell(
                    Fact.PROCESS_KILL_FAILED, str(error), error=error, request_id=request.request_id
                )
        finally:
            execution.tellable.set()

    async def _reconnect(self, sandbox: LiveSandbox, request: ReconnectRequest) -> None:
        await self.tell(Fact.RECONNECTED)
        await self.catch_up(sandbox, request.offset, request.offsets)

    async def catch_up(
        self,
        sandbox: LiveSandbox,
        offset: int | None = None,
        offsets: Mapping[str, int] | None = None,
    ) -> None:
        """Go on with what is running, behind what the client has seen. It hears of every process
        that is still known here; of one that it does not hear, it missed the end."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        for execution in list(sandbox.executions):
            task = self._followers.pop(execution, None)
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            beside = execution.process_id
            seen = offset if beside is None else (offsets or {}).get(beside)
            if seen is not None:
                execution.sent = min(seen, execution.process.replay.end)
            if beside is None:
                await self.tell(Fact.EXECUTION_BEGUN)
            else:
                await self.say(StartedEvent(event="started", process_id=beside))
            self._follow(sandbox, execution)

    def expect_reconnect(self, sandbox: LiveSandbox) -> None:
        """After attaching to a sandbox that is busy: a client that does not say `reconnect` soon
        does not know the word, and is told what runs all the same."""
        if any(True for _ in sandbox.executions):
            self._reconnecting = asyncio.get_running_loop().call_later(
                RECONNECT_SECONDS, lambda: asyncio.ensure_future(self.catch_up(sandbox))
            )

    # -- the sandbox as a whole

    async def _kill_sandbox(self, sandbox: LiveSandbox) -> None:
        await self.tell(Fact.KILL_BEGUN)
        try:
            await self._fleet.exits.kill(sandbox, self.tell)
        except HoldfastError as error:
            await self.tell(Fact.KILL_FAILED, str(error))
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
        await self.say(checkpoint_event(captured, request.request_id))
        await self.tell(Fact.CHECKPOINTED_RUNNING if request.leave_running else Fact.CHECKPOINTED)

    async def _snapshot(self, sandbox: LiveSandbox, request: SnapshotRequest) -> None:
        await self.tell(Fact.SNAPSHOT_BEGUN)
        try:
            made = await self._fleet.freezer.snapshot(sandbox, request.name)
        except HoldfastError as error:
            await self.tell(
                Fact.SNAPSHOT_FAILED, str(error), error=error, request_id=request.request_id
            )
            return
        await self.say(
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
        await self.say(ForkEvent(event="fork", sandboxes=passes, request_id=request.request_id))

    async def _rollback(self, sandbox: LiveSandbox, request: RollbackRequest) -> None:
        await self._follow_nothing()
        try:
            target = await self._fleet.rollback(sandbox, request.checkpoint)
        except HoldfastError:
            for execution in list(sandbox.executions):
                self._follow(sandbox, execution)
            raise
        await self._tell_of_rollback(sandbox, target.id, request.request_id)

    async def _follow_nothing(self) -> None:
        for execution, task in list(self._followers.items()):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._followers.pop(execution, None)

    async def went_back(self, sandbox: LiveSandbox, checkpoint: str) -> None:
        """Somebody else has taken it there."""
        await self._follow_nothing()
        await self._tell_of_rollback(sandbox, checkpoint, None)

    async def _tell_of_rollback(
        self, sandbox: LiveSandbox, checkpoint: str, request_id: str | None
    ) -> None:
        if self._conversation.executing and sandbox.foreground is None:
            await self.tell(Fact.EXECUTION_ENDED)
        await self.say(
            RollbackEvent(event="rollback", checkpoint=checkpoint, request_id=request_id)
        )
        await self.catch_up(sandbox)


class _Input:
    """Input for one execution, given as fast as the program takes it."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._held = 0
        self.task = asyncio.create_task(self._give())

    def add(self, data: bytes, end: bool) -> None:
        if self._held + len(data) > MOST_INPUT:
            raise Conflict("the program does not read its input", hint="send less, or wait")
        self._held += len(data)
        if data:
            self._waiting.put_nowait(data)
        if end:
            self._waiting.put_nowait(None)

    async def _give(self) -> None:
        while (data := await self._waiting.get()) is not None:
            await self._execution.process.write(data)
            self._held -= len(data)
        self._execution.process.end_input()


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
