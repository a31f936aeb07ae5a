"""The executions of one client: begun, followed to their end, given input, killed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from holdfast.model.errors import Conflict, HoldfastError, NotFound
from holdfast.protocol.sandbox_flow import Fact, Phase, error_event
from holdfast.protocol.sandbox_messages import (
    ExecuteRequest,
    KillProcessRequest,
    StartedEvent,
    StdinEvent,
    WindowRequest,
)
from holdfast.sandbox.execution import Execution
from holdfast.sandbox.live import LiveSandbox
from holdfast.server import background
from holdfast.server.connection import Connection
from holdfast.server.files import data_of
from holdfast.server.windows import Windows

# A client that comes back says `reconnect` at once; one that is new here never does.
RECONNECT_SECONDS = 1.0
MOST_INPUT = 16 << 20  # that a program has not read yet


class Executions:
    """What runs in a sandbox, as its client hears of it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._followers: dict[Execution, asyncio.Task[None]] = {}
        self._inputs: dict[Execution, _Input] = {}
        self._windows = Windows()
        self._reconnecting: asyncio.TimerHandle | None = None
        self._catching_up: asyncio.Task[None] | None = None

    async def begin(self, sandbox: LiveSandbox, request: ExecuteRequest) -> None:
        try:
            if request.process_id is None and self._connection.executing:
                raise Conflict("an execution is running", hint="wait for it, or give a process_id")
            execution = await sandbox.execute(request)
        except HoldfastError as error:
            if request.process_id is None:
                await self._connection.tell(
                    Fact.EXECUTION_REFUSED, str(error), error=error, request_id=request.request_id
                )
                return
            told = error_event(error, request.request_id)
            await self._connection.say(msgspec.structs.replace(told, process_id=request.process_id))
            return
        self._windows.put(request.process_id, request.window)
        await self._tell_of(request.process_id, request.request_id)
        self._follow(sandbox, execution)

    async def _tell_of(self, process_id: str | None, request_id: str | None = None) -> None:
        """It runs: the execution, or a process beside it."""
        if process_id is None:
            await self._connection.tell(Fact.EXECUTION_BEGUN)
        else:
            await self._connection.say(
                StartedEvent(event="started", process_id=process_id, request_id=request_id)
            )

    # -- output

    def follow_all(self, sandbox: LiveSandbox) -> None:
        for execution in list(sandbox.executions):
            self._follow(sandbox, execution)

    def _follow(self, sandbox: LiveSandbox, execution: Execution) -> None:
        execution.process.follower = True
        self._followers[execution] = background.begin(
            "passing output on", lambda: self._pass_on(sandbox, execution), self._fault
        )

    async def _fault(self) -> None:
        """Its client would wait for ever for what is not passed on."""
        told = HoldfastError("the server failed", hint="its log says why")
        await self._connection.tell(Fact.FAULT, error=told)

    async def follow_none(self) -> None:
        """Nothing more is passed on when this returns."""
        for execution in list(self._followers):
            await self._unfollow(execution)

    async def _unfollow(self, execution: Execution) -> None:
        task = self._followers.pop(execution, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _pass_on(self, sandbox: LiveSandbox, execution: Execution) -> None:
        """Output as it comes, then the end; the process waits for a client that is slow."""
        process = execution.process
        while True:
            ended = process.exit is not None
            for piece in execution.pieces():
                await self._windows.open(execution.process_id, piece.begin - piece.gap)
                if not await self._connection.say(execution.event(piece)):
                    return  # what was not sent is told again to whoever attaches next
                execution.sent = piece.offset
            process.consumed()
            if ended:
                break
            if execution.sent >= process.replay.end and process.exit is None:
                await process.changed()
        await execution.tellable.wait()
        if self._connection.closed.is_set() or sandbox.away:
            return
        await self._connection.say(execution.exit_event())
        if execution.process_id is None:
            await self._connection.tell(Fact.EXECUTION_ENDED)
        if not self._connection.closed.is_set():
            sandbox.forget(execution)
        self._followers.pop(execution, None)
        self._windows.put(execution.process_id, None)
        if execution in self._inputs:
            self._inputs.pop(execution).task.cancel()

    def widen(self, sandbox: LiveSandbox, request: WindowRequest) -> None:
        """The client takes so much. Of a process that has ended meanwhile nothing waits."""
        if any(each.process_id == request.process_id for each in sandbox.executions):
            self._windows.put(request.process_id, request.until)

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
            await self._unfollow(execution)
            beside = execution.process_id
            seen = offset if beside is None else (offsets or {}).get(beside)
            if seen is not None:
                execution.sent = min(seen, execution.process.replay.end)
            await self._tell_of(beside)
            self._follow(sandbox, execution)

    def expect_reconnect(self, sandbox: LiveSandbox) -> None:
        """After attaching to a sandbox that is busy: a client that does not say `reconnect` soon
        does not know the word, and is told what runs all the same."""
        if any(True for _ in sandbox.executions):
            self._reconnecting = asyncio.get_running_loop().call_later(
                RECONNECT_SECONDS, self._catch_up_later, sandbox
            )

    def _catch_up_later(self, sandbox: LiveSandbox) -> None:
        self._catching_up = background.begin(
            "telling what runs", lambda: self.catch_up(sandbox), self._fault
        )

    # -- input, and the end

    async def give_input(self, sandbox: LiveSandbox, request: StdinEvent) -> None:
        try:
            execution = sandbox.find(request.process_id)
            given = self._inputs.get(execution)
            if given is None:
                given = self._inputs[execution] = _Input(execution)
            given.add(data_of(request.data or "", request.encoding), request.eof)
        except HoldfastError as error:
            if self._connection.phase is not Phase.OPEN:  # a checkpoint is being stored
                await self._connection.say(error_event(error, request.request_id))
                return
            await self._connection.tell(
                Fact.STDIN_REFUSED, str(error), error=error, request_id=request.request_id
            )

    async def kill(self, sandbox: LiveSandbox, request: KillProcessRequest) -> None:
        if request.process_id is not None:
            await sandbox.find(request.process_id).kill()
            return
        try:
            execution = sandbox.find(None)
        except NotFound:
            await self._connection.tell(Fact.PROCESS_KILLED)  # nothing was running: so it is
            return
        execution.tellable.clear()
        try:
            await execution.kill()
            await self._connection.tell(Fact.PROCESS_KILLED)
        except HoldfastError as error:
            if self._connection.phase is Phase.OPEN:  # or it is taken away, with what runs
                await self._connection.tell(
                    Fact.PROCESS_KILL_FAILED, str(error), error=error, request_id=request.request_id
                )
        finally:
            execution.tellable.set()

    def let_go(self) -> None:
        """They go on without a client, and wait for none."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        if self._catching_up is not None:
            self._catching_up.cancel()
        for execution, task in self._followers.items():
            task.cancel()
            execution.process.unfollow()
        for each in self._inputs.values():
            each.task.cancel()
        self._followers.clear()
        self._inputs.clear()


class _Input:
    """Input for one execution, given as fast as the program takes it."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._held = 0
        self.task = background.begin("giving input", self._give)

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
