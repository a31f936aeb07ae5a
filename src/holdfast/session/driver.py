"""Driving a worker: one request at a time, each with its answer. It knows no store."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from holdfast.model.errors import BadInput, CaptureFailed, HoldfastError, UsageError
from holdfast.model.subject import Subject
from holdfast.protocol.frames import pieces
from holdfast.protocol.session_messages import (
    CheckpointCreatedMessage,
    CheckpointMessage,
    ErrorMessage,
    ExecuteMessage,
    InputMessage,
    InputResponseMessage,
    PartMessage,
    ReadyMessage,
    RestoredMessage,
    RestoreMessage,
    ResultMessage,
    ShutdownMessage,
    Stream,
    WorkerMessage,
)
from holdfast.session import checks
from holdfast.session.execution import Execution
from holdfast.session.output import Early
from holdfast.session.process import WorkerProcess
from holdfast.session.result import Result

_T = TypeVar("_T")
Answer = Callable[[str], Awaitable[str | None] | str | None]

START_TIMEOUT = 60.0
SHUTDOWN_TIMEOUT = 2.0
GRACE = 5.0  # how long an interrupted cell may take to stop before its worker is ended
WORK_TIMEOUT = 600.0  # for a capture or a restore in the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a worker is started."""

    python: str
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def environ(self) -> dict[str, str]:
        """The worker's environment: without what is the host's business, keys and tokens."""
        ours = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        return {**ours, **self.env}


class _Work:
    """A capture or a restore that is under way in the worker."""

    def __init__(self, request: int) -> None:
        self.id = request
        self.stopped = asyncio.Event()  # somebody interrupted it


class Driver:
    """A worker, or the place of one. Whoever talks to it holds `lock`."""

    def __init__(self, subject: Subject, launch: Launch) -> None:
        self.lock = asyncio.Lock()
        self.closed = False  # whether it was shut down
        self._subject = subject
        self.hint = f"Session.resume({subject.name!r}) goes on from the last checkpoint"
        self._launch = launch
        self._worker: WorkerProcess | None = None
        self._execution: Execution | None = None
        self._requests = 0
        self._early = Early()
        self._work: _Work | None = None
        self._abandoned = False  # whether nobody waits any more for what `to_the_end` does
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def alive(self) -> bool:
        return self._worker is not None and self._worker.alive

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
        if self.closed:
            raise UsageError("the session is shut down", hint=self.hint)

    def worker(self) -> WorkerProcess:
        """The worker, dead or alive; raises UsageError when there is none to ask."""
        self.check_open()
        if self._worker is None:
            raise UsageError(f"{self._subject} is not started", hint="await session.start()")
        return self._worker

    async def start(self) -> None:
        """Start a worker in the place of the one that is not there."""
        self.closed = False
        worker = WorkerProcess(self._output)
        worker.start(self._launch.python, self._launch.environ(), self._launch.cwd)
        self._early.take()
        try:
            message = await asyncio.wait_for(worker.receive(), START_TIMEOUT)
        except BaseException:
            worker.kill()
            raise
        if not isinstance(message, ReadyMessage):
            worker.kill()
            said = "".join(text for _, text in self._early.take()).strip().split("\n")[-1]
            raise HoldfastError(
                f"the worker did not start: {said or worker.how_it_ended}",
                hint=f"see whether `{self._launch.python}` can import holdfast and msgspec",
            )
        if self.closed:  # while this was starting
            worker.kill()
            await worker.ended()
            self.check_open()
        self._worker = worker

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

    def interrupt(self, execution: Execution | None = None) -> bool:
        """Interrupt the running cell, if it is this one; False when it is not running.

        Without an execution, also a capture or a restore.
        """
        worker, running, work = self._worker, self._execution, self._work
        if worker is None or not worker.alive:
            return False
        if work is not None and execution is None:
            work.stopped.set()
            worker.interrupt(work.id)
            return True
        if running is None or (execution or running) is not running:
            return False
        worker.interrupt(running.id)
        return True

    async def _run(
        self, execution: Execution, code: str, timeout: float | None, answer: Answer | None
    ) -> Result:
        try:
            async with self.lock:
                worker = self._worker
                assert worker is not None
                if not worker.alive:
                    return execution.fail("WorkerDied", worker.how_it_ended, self.hint)
                self._execution = execution
                if self._early.dropped:
                    execution.lost(self._early.dropped)
                for stream, text in self._early.take():
                    execution.output(stream, text)
                worker.send(ExecuteMessage(execution_id=execution.id, code=code))
                return await self._result(worker, execution, timeout, answer)
        finally:
            if self._execution is execution:
                self._execution = None
                for task in self._answering:
                    task.cancel()
            execution.close()

    async def _result(
        self,
        worker: WorkerProcess,
        execution: Execution,
        timeout: float | None,
        answer: Answer | None,
    ) -> Result:
        clock = asyncio.get_running_loop().time
        deadline = None if timeout is None else clock() + timeout
        while True:
            left = None if deadline is None else deadline - clock()
            try:
                message = await asyncio.wait_for(worker.receive(), left)
            except TimeoutError:
                if execution.timed_out is not None:
                    worker.kill()
                    deadline = None
                else:
                    execution.timed_out = timeout
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
                case None if execution.timed_out is not None:
                    text = f"did not stop {GRACE:g} s after {execution.timed_out:g} s; killed"
                    return execution.fail("TimeoutError", text, self.hint)
                case None:
                    return execution.fail("WorkerDied", worker.how_it_ended, self.hint)

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
        timeout: float | None = WORK_TIMEOUT,
    ) -> tuple[dict[str, bytes], CheckpointCreatedMessage]:
        """The parts of a checkpoint. Raises CaptureFailed."""
        worker = self.worker()
        message = CheckpointMessage(
            request_id=self._request(),
            reason=reason,
            stage=stage,
            save_to_disk=save_to_disk,
            max_item_bytes=max_item_bytes,
        )
        work = self._capture(worker, message)
        return await self._within(worker, message.request_id, "capture", timeout, work)

    async def _capture(
        self, worker: WorkerProcess, asked: CheckpointMessage
    ) -> tuple[dict[str, bytes], CheckpointCreatedMessage]:
        worker.send(asked)
        request = asked.request_id
        parts: dict[str, bytearray] = {}
        while True:
            message = await self._reply(worker, request, CaptureFailed)
            if message is None:
                raise CaptureFailed(f"{self._subject}: {worker.how_it_ended}", hint=self.hint)
            if isinstance(message, PartMessage):
                parts.setdefault(message.name, bytearray()).extend(message.data)
            elif isinstance(message, CheckpointCreatedMessage):
                return {name: bytes(data) for name, data in parts.items()}, message

    async def restore(
        self,
        checkpoint_id: str,
        parts: Mapping[str, bytes],
        secrets: Mapping[str, str],
        timeout: float | None = WORK_TIMEOUT,
    ) -> RestoredMessage | None:
        """Replace the namespace; None when the worker ended over it.

        Raises HoldfastError, and then the namespace is as it was.
        """
        worker = self.worker()
        message = RestoreMessage(
            request_id=self._request(),
            checkpoint_id=checkpoint_id,
            parts=len(parts),
            secrets=dict(secrets),
        )
        work = self._replace(worker, message, parts)
        return await self._within(worker, message.request_id, "restore", timeout, work)

    async def _replace(
        self, worker: WorkerProcess, asked: RestoreMessage, parts: Mapping[str, bytes]
    ) -> RestoredMessage | None:
        request = asked.request_id
        worker.send(asked)
        messages = (
            PartMessage(request_id=request, name=name, data=bytes(piece), last=last)
            for name, data in parts.items()
            for piece, last in pieces(data)
        )
        try:
            for part in messages:
                worker.send(part)
                await worker.drained()
        finally:
            for part in messages:  # half a restore would leave the worker waiting for the rest
                worker.send(part)
        while True:
            message = await self._reply(worker, request, HoldfastError)
            if message is None or isinstance(message, RestoredMessage):
                return message

    async def _within(
        self,
        worker: WorkerProcess,
        request: int,
        what: str,
        timeout: float | None,
        conversation: Coroutine[Any, Any, _T],
    ) -> _T:
        """A conversation that ends in time, or soon after it was interrupted."""
        if self._abandoned:
            conversation.close()
            raise CaptureFailed(f"{self._subject}: the {what} was cancelled")
        work = self._work = _Work(request)
        task = asyncio.create_task(conversation)
        stopped = asyncio.create_task(work.stopped.wait())
        late = ""
        try:
            await asyncio.wait({task, stopped}, timeout=timeout, return_when="FIRST_COMPLETED")
            if not task.done():
                if not work.stopped.is_set():
                    late = f"{self._subject}: the {what} took longer than {timeout:g} s"
                    worker.interrupt(request)
                await asyncio.wait({task}, timeout=GRACE)
            if not task.done():
                raise CaptureFailed(
                    f"{late or f'{self._subject}: the {what} was interrupted'}, and the worker "
                    f"did not react within {GRACE:g} s: it is stopped or stuck",
                    hint="shutdown() ends it; " + self.hint,
                )
            if late and isinstance(task.exception(), HoldfastError):
                raise CaptureFailed(f"{late}; the session is as it was") from task.exception()
            return task.result()
        finally:
            self._work = None
            stopped.cancel()
            task.cancel()

    async def to_the_end(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Work that is not cut in the middle: a cancellation is raised after its end.

        Half a restore would leave the worker waiting for parts that never come. What the
        worker does for it is interrupted, so the end is near.
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
            if not task.cancelled():
                task.exception()  # nobody is there to hear of it
            raise

    async def _reply(
        self, worker: WorkerProcess, request: int, error: type[HoldfastError]
    ) -> WorkerMessage | None:
        """The next message that belongs to a request; None when the worker has ended."""
        while True:
            message = await worker.receive()
            if message is None:
                return None
            if getattr(message, "request_id", None) != request:
                continue  # left over from a call that was cancelled
            if isinstance(message, ErrorMessage):
                raised = error(f"{message.error_type}: {message.message}")
                raised.add_note(message.traceback.rstrip())
                raise raised
            return message

    def _request(self) -> int:
        self._requests += 1
        return self._requests


async def _answer(worker: WorkerProcess, question: InputMessage, answer: Answer | None) -> None:
    """Ask the client; without one, or when it fails, the cell sees the end of input."""
    text: str | None = None
    error = ""
    try:
        if answer is not None:
            given = answer(question.prompt)
            found = await given if inspect.isawaitable(given) else given
            try:
                text = None if found is None else checks.text("the answer to input()", found)
            except BadInput as refused:
                error = str(refused)
    finally:
        request = question.request_id
        worker.send(InputResponseMessage(request_id=request, text=text, error=error))
