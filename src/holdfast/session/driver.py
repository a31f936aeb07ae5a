"""Driving a worker: one request at a time, each with its answer. It knows no store."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar

from holdfast.model.errors import BadInput, CaptureFailed, HoldfastError, UsageError
from holdfast.model.secrets import Rule
from holdfast.model.subject import Subject
from holdfast.protocol.session_messages import (
    CapturingMessage,
    CheckpointMessage,
    CompletedMessage,
    CompleteMessage,
    ExecuteMessage,
    InputMessage,
    InputResponseMessage,
    InspectedMessage,
    InspectMessage,
    RestoredMessage,
    RestoreMessage,
    ResultMessage,
    ShutdownMessage,
    Stream,
    Variable,
    WorkerMessage,
)
from holdfast.session import checks, omissions, work
from holdfast.session.arriving import Arriving, Coming, Left
from holdfast.session.checkpoints import Stored
from holdfast.session.execution import Execution
from holdfast.session.limits import CpuWatch, Limits
from holdfast.session.mapped import Mapped
from holdfast.session.memory import can_read
from holdfast.session.output import Early
from holdfast.session.process import WorkerProcess
from holdfast.session.result import Prompt, Result
from holdfast.session.work import WORK_TIMEOUT, TakeAhead, Work
from holdfast.session.workers import Greet, Workers

_T = TypeVar("_T")
Answer = Callable[[str], Awaitable[str | None] | str | None]

LOOK_TIMEOUT = 5.0  # for a look into the namespace
SHUTDOWN_TIMEOUT = 2.0
GRACE = 5.0  # how long an interrupted cell may take to stop before its worker is ended


class Place(NamedTuple):
    """The worker that a driver has, if any, and whether somebody knows that it died."""

    worker: WorkerProcess | None
    told: bool


class Driver:
    """A worker, or the place of one. Whoever talks to it holds `lock`."""

    def __init__(self, subject: Subject, workers: Workers, limits: Limits) -> None:
        self.lock = asyncio.Lock()
        self.closed = False  # whether it was shut down
        self.closing = False  # whether it will be, as soon as what is due has been saved
        # What comes before a cell, brings a worker that died back, and follows a cell; all with
        # `lock` held.
        self.before_cell: Callable[[], None] | None = None
        self.revive: Callable[[], Awaitable[str | None]] | None = None
        self.after_cell: Callable[[Result], Awaitable[None]] | None = None
        self.on_start: Callable[[], None] | None = None  # of a worker
        self.on_death: Callable[[], None] | None = None  # of one, at any moment
        self._subject = subject
        self.hint = f"Session.resume({subject.name!r}) goes on from the last checkpoint"
        self._workers = workers
        self._limits = limits
        self.loop: asyncio.AbstractEventLoop | None = None  # that the worker is served on
        self._worker: WorkerProcess | None = None
        self._told = False  # whether somebody knows that the worker died
        self._execution: Execution | None = None
        self._requests = 0
        self._early = Early()
        self._work: Work | None = None
        self.arriving: Arriving | Left | None = None  # the last capture beside the session
        self._abandoned = False  # whether nobody waits any more for what `to_the_end` does
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def alive(self) -> bool:
        return self._worker is not None and self._worker.alive

    @property
    def busy(self) -> bool:
        """Whether a cell is running."""
        return self._execution is not None

    @property
    def started(self) -> bool:
        """Whether there has been a worker, alive or not."""
        return self._worker is not None

    @property
    def pid(self) -> int | None:
        return self._worker.pid if self._worker is not None and self._worker.alive else None

    @property
    def state(self) -> str:
        """In words, where the worker stands."""
        if self.closed:
            return "shut down"
        if self._worker is None:
            return "not started"
        return f"running pid {self.pid}" if self.alive else f"ended: {self._worker.how_it_ended}"

    def check_open(self) -> None:
        """Raise UsageError after the session was shut down."""
        if self.closed or self.closing:
            raise UsageError("the session is shut down", hint=self.hint)

    def worker(self) -> WorkerProcess:
        """The worker, dead or alive; raises UsageError when there is none to ask."""
        self.check_open()
        return self._asked()

    def _asked(self) -> WorkerProcess:
        if self._worker is None:
            raise UsageError(f"{self._subject} is not started", hint="await session.start()")
        return self._worker

    async def launch(self, greet: Greet | None = None) -> WorkerProcess:
        """A new worker, which nobody drives yet."""
        return await self._workers.start(greet)

    async def start(self, worker: WorkerProcess | None = None) -> None:
        """Put a worker, by default a new one, in the place of the one that is not there."""
        self.closed = self.closing = False
        self.loop = asyncio.get_running_loop()
        worker = worker or await self.launch()
        self._early.take()
        worker.deliver = self._output
        worker.on_end = self._died
        if self.closed:  # while this was starting
            worker.kill()
            await worker.ended()
            self.check_open()
        self._worker = worker
        self._told = False
        if self.on_start is not None:
            self.on_start()

    @property
    def place(self) -> Place:
        """What `back_to` takes."""
        return Place(self._worker, self._told)

    async def back_to(self, place: Place) -> None:
        """Have the worker of before again, dead or alive or none, and end one that came since: it
        has only half of what it was started for, and no cell may run in it."""
        new = self._worker
        if new is place.worker:
            return
        self._worker, self._told = place
        if new is not None:
            new.on_end = lambda: None
            new.kill()
            await new.ended()

    def _died(self) -> None:
        if self.on_death is not None and not self.closed:
            self.on_death()

    async def shutdown(self) -> None:
        """End the worker, whatever it does."""
        self.closed = True
        worker = self._worker
        if worker is None or not worker.alive:
            return
        self.interrupt()
        worker.send(ShutdownMessage())
        if not await worker.ended(SHUTDOWN_TIMEOUT):
            worker.kill()
            await worker.ended(GRACE)

    # -- cells ---------------------------------------------------------------------------

    def begin(self, code: str, timeout: float | None, answer: Answer | None) -> Execution:
        """Run a cell as soon as the worker is free."""
        self.worker()
        execution = Execution(self._request())
        execution.task = asyncio.create_task(self._run(execution, code, timeout, answer))
        return execution

    async def run_inside(self, code: str, timeout: float | None) -> Result:
        """Run a cell for whoever holds `lock`."""
        execution = Execution(self._request())
        await self._cell(self.worker(), execution, code, timeout, None)
        execution.close()
        return execution.result

    def interrupt(self, execution: Execution | None = None) -> bool:
        """Interrupt the running cell, if it is this one; False when it is not running.

        Without an execution, also a capture or a restore.
        """
        worker, running, arriving = self._worker, self._execution, self.arriving
        alive = worker is not None and worker.alive
        if self._work is not None and execution is None and alive:
            self._work.interrupt()
            return True
        if worker is not None and alive and running is not None:
            if execution is not None and execution is not running:
                return False
            worker.interrupt(running.id)
            return True
        if execution is None and arriving is not None and arriving.open:
            arriving.stop(f"{self._subject}: KeyboardInterrupt: the capture was interrupted")
            return True
        return False

    async def _run(
        self, execution: Execution, code: str, timeout: float | None, answer: Answer | None
    ) -> None:
        try:
            async with self.lock:
                if self.before_cell is not None:
                    self.before_cell()
                worker = await self._living(execution)
                if worker is None:
                    return
                await self._cell(worker, execution, code, timeout, answer)
                answered = not self._told  # though the worker may have ended since
                if self.after_cell is not None and answered:
                    await self.after_cell(execution.result)
        except Exception as error:  # noqa: BLE001  # whoever waits for the cell gets it
            execution.close(error)
        finally:
            execution.close()

    async def _living(self, execution: Execution) -> WorkerProcess | None:
        """A worker to run a cell in; a death is told once before the session goes on."""
        worker = self._worker
        assert worker is not None
        if self.closing or self.closed:
            execution.fail("WorkerDied", "the session is shut down", self.hint)
            return None
        if worker.alive:
            return worker
        death, told = worker.how_it_ended, self._told
        self._told = True
        if told and self.revive is not None:
            try:
                execution.resumed_from = await self.revive()
            except HoldfastError as error:
                death = f"{death}; the last checkpoint cannot be restored either: {error}"
        if execution.resumed_from is None:
            execution.fail("WorkerDied", death, self.hint)
            return None
        return self._worker

    async def _cell(
        self,
        worker: WorkerProcess,
        execution: Execution,
        code: str,
        timeout: float | None,
        answer: Answer | None,
    ) -> None:
        self._execution = execution
        try:
            if self._early.dropped:
                execution.lost(self._early.dropped)
            for stream, text in self._early.take():
                execution.output(stream, text)
            limit = self._limits.memory
            worker.send(ExecuteMessage(execution_id=execution.id, code=code, memory_limit=limit))
            await self._answered(worker, execution, timeout, answer)
        finally:
            self._execution = None
            for task in self._answering:
                task.cancel()

    async def _answered(
        self,
        worker: WorkerProcess,
        execution: Execution,
        timeout: float | None,
        answer: Answer | None,
    ) -> None:
        """Wait for the result, in time, and answer the cell's questions meanwhile."""
        clock = asyncio.get_running_loop().time
        deadline = None if timeout is None else clock() + timeout
        cpu = CpuWatch(self._limits, worker)
        while True:
            look = None if execution.stopped else cpu.next_look()
            waits = [wait for wait in (deadline and deadline - clock(), look) if wait is not None]
            try:
                message = await asyncio.wait_for(worker.receive(), min(waits, default=None))
            except TimeoutError:
                if deadline is not None and clock() >= deadline:
                    if execution.stopped:
                        worker.kill()
                        deadline = None
                        continue
                    execution.stop("TimeoutError", f"stopped after {timeout:g} s")
                elif not execution.stopped and cpu.exceeded:
                    execution.stop("CpuTimeExceeded", cpu.words)
                else:
                    continue
                worker.interrupt(execution.id)
                deadline = clock() + GRACE
                continue
            match message:
                case ResultMessage() if message.execution_id == execution.id:
                    return execution.finish(message)
                case InputMessage():
                    task = asyncio.create_task(_answer(worker, message, answer))
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)
                case None:
                    self._told = True
                    kind, why = execution.stopped or ("WorkerDied", worker.how_it_ended)
                    if execution.stopped:
                        why += f"; its worker did not react and was killed {GRACE:g} s later"
                    return execution.fail(kind, why, self.hint)

    def _output(self, stream: Stream, text: str) -> None:
        """What is written while no cell runs belongs to the next one."""
        if self._execution is not None:
            self._execution.output(stream, text)
        else:
            self._early.add(stream, text)

    # -- checkpoints, with `lock` held ---------------------------------------------------

    async def capture(
        self,
        reason: str,
        stage: str | None,
        save_to_disk: bool,
        max_item_bytes: int | None,
        max_checkpoint_bytes: int | None,
        rule: Rule,
        base: int = 0,
        timeout: float | None = WORK_TIMEOUT,
        ahead: TakeAhead | None = None,
        stood: bool = False,
    ) -> Coming:
        """The parts of a checkpoint, or what brings them. Raises CaptureFailed.

        `ahead` takes memory that comes before them. With `stood` the worker makes it itself, since
        the copy that was to make the last one stood still.
        """
        worker = self._asked()
        message = CheckpointMessage(
            request_id=self._request(),
            reason=reason,
            stage=stage,
            save_to_disk=save_to_disk,
            max_item_bytes=max_item_bytes,
            max_checkpoint_bytes=max_checkpoint_bytes,
            beside=True,
            timeout=timeout,
            base=base,
            reads=can_read(worker.pid),
            ahead=ahead is not None,
            stood=stood,
            keep_secrets=rule.keep_all or tuple(sorted(rule.keep)),
            leave_out=tuple(sorted(rule.leave_out)),
        )
        conversation = work.capture(worker, message, ahead)
        made = await self._asked_for(worker, message, "capture", timeout, conversation)
        if made is None:
            self._told = True
            raise CaptureFailed(f"{self._subject}: {worker.how_it_ended}", hint=self.hint)
        if isinstance(made, CapturingMessage):
            file = worker.take_file()
            self.arriving = (
                Arriving(file, made, timeout, worker.pid) if made.pid else Left(file, made)
            )
            return self.arriving
        return made

    async def restore(
        self,
        checkpoint_id: str,
        stored: Stored,
        secrets: Mapping[str, str | bytes],
        timeout: float | None = WORK_TIMEOUT,
    ) -> RestoredMessage | None:
        """Replace the namespace; None when the worker ended over it.

        Of the secrets, the worker is sent those that the checkpoint's report asks for.
        Raises HoldfastError, and then the namespace is as it was.
        """
        worker = self._asked()
        request = self._request()
        asked = omissions.chosen(secrets, stored.parts)
        with Mapped(request, stored.memory) as mapped:
            message = RestoreMessage(
                request_id=request,
                checkpoint_id=checkpoint_id,
                parts=len(stored.parts) + len(mapped.messages),
                files=len(mapped.files),
                secrets={k: v for k, v in asked.items() if isinstance(v, str)},
                binary_secrets={k: v for k, v in asked.items() if isinstance(v, bytes)},
            )
            conversation = work.restore(worker, message, stored.parts, mapped)
            return await self._within(worker, request, "restore", timeout, conversation)

    async def complete(self, text: str) -> tuple[str, ...]:
        """What the name at the end of a text could be; nothing when the worker does not know."""
        worker = self._asked()
        asked = CompleteMessage(request_id=self._request(), text=text)
        found = await self._look(worker, asked)
        return found.matches if isinstance(found, CompletedMessage) else ()

    async def variables(self) -> tuple[Variable, ...]:
        """The variables that are there. Raises CaptureFailed when they cannot be looked at."""
        worker = self._asked()
        found = await self._look(worker, InspectMessage(request_id=self._request()))
        if not isinstance(found, InspectedMessage):
            raise CaptureFailed(f"{self._subject}: {worker.how_it_ended}", hint=self.hint)
        return found.variables

    async def _look(
        self, worker: WorkerProcess, asked: CompleteMessage | InspectMessage
    ) -> WorkerMessage | None:
        conversation = work.look(worker, asked)
        return await self._asked_for(worker, asked, "look", LOOK_TIMEOUT, conversation)

    async def _asked_for(
        self,
        worker: WorkerProcess,
        asked: CheckpointMessage | CompleteMessage | InspectMessage,
        what: str,
        timeout: float | None,
        answer: Coroutine[Any, Any, _T],
    ) -> _T:
        """The answer to a message, which is sent before anything else happens here: what is to be
        done beside the worker begins when that has begun."""
        if not self._abandoned:
            worker.send(asked)
        return await self._within(worker, asked.request_id, what, timeout, answer)

    async def _within(
        self,
        worker: WorkerProcess,
        request: int,
        what: str,
        timeout: float | None,
        conversation: Coroutine[Any, Any, _T],
    ) -> _T:
        this = Work(worker, request, what, str(self._subject))
        if self._abandoned:
            conversation.close()
            raise this.cancelled()
        self._work = this
        try:
            return await this.within(conversation, timeout, GRACE, self.hint)
        finally:
            self._work = None

    async def to_the_end(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Work that is not cut in the middle: a cancellation is raised after its end.

        What the worker does for it is interrupted, so the end is near.
        """
        self._abandoned = False
        task = asyncio.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._abandoned = True
            if self._work is not None:
                self.interrupt()
            await asyncio.wait({task})
            # Nobody is there to hear of an error, or to take what a copy of the worker sends.
            if not task.cancelled() and task.exception() is None:
                result = task.result()
                if isinstance(result, (Arriving, Left)):
                    result.close()
            raise
        finally:
            self._abandoned = False

    def _request(self) -> int:
        self._requests += 1
        return self._requests


async def _answer(worker: WorkerProcess, question: InputMessage, answer: Answer | None) -> None:
    """Ask the client; without one, or when it fails, the cell sees the end of input."""
    text: str | None = None
    error = ""
    try:
        if answer is not None:
            given = answer(Prompt(question.prompt, question.password))
            found = await given if inspect.isawaitable(given) else given
            try:
                text = None if found is None else checks.text("the answer to input()", found)
            except BadInput as refused:
                error = str(refused)
    finally:
        request = question.request_id
        worker.send(InputResponseMessage(request_id=request, text=text, error=error))
