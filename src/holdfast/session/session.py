"""A live Python session: the object that users hold. One call at a time reaches the worker."""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets as random_names
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import (
    CaptureFailed,
    HoldfastError,
    NotFound,
    UsageError,
)
from holdfast.model.report import Report
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
from holdfast.session import checkpoints
from holdfast.session.checkpoints import Reference, SessionCheckpoint, report_of
from holdfast.session.execution import Execution
from holdfast.session.process import WorkerProcess
from holdfast.session.result import Result
from holdfast.store import Store, open_store

Answer = Callable[[str], Awaitable[str | None] | str | None]
_T = TypeVar("_T")

IN_MEMORY = 10 << 20  # a checkpoint up to this size may stay in memory when asked
START_TIMEOUT = 60.0
GRACE = 5.0  # how long an interrupted cell may take to stop before its worker is ended
_SECRET = "HOLDFAST_SECRET_"


class Session:
    """A Python namespace in a worker process, which can be frozen and brought back."""

    def __init__(
        self,
        name: str | None = None,
        *,
        store: Store | str | None = None,
        on_input: Answer | None = None,
        secrets: Mapping[str, str] | None = None,
        python: str | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        max_item_bytes: int | None = None,
    ) -> None:
        self.name = name or f"session-{random_names.token_hex(4)}"
        self.subject = Subject("session", self.name)
        self.report: Report | None = None  # of the last restore
        self._store_or_url = store
        self._memory: Store | None = None
        self._on_input = on_input
        self._secrets = dict(secrets or {})
        self._python = python or sys.executable
        self._cwd = Path(cwd) if cwd is not None else None
        self._env = dict(env or {})
        self._max_item_bytes = max_item_bytes
        self._worker: WorkerProcess | None = None
        self._lock = asyncio.Lock()
        self._execution: Execution | None = None
        self._requests = 0
        self._early: list[tuple[Stream, str]] = []
        self._answering: set[asyncio.Task[None]] = set()

    # -- life ----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Start the worker. Raises UsageError when it runs already."""
        async with self._lock:
            if self.alive:
                raise UsageError(f"{self.subject} runs already")
            await self._start()
        return self

    async def shutdown(self) -> None:
        """End the worker; what is not in a checkpoint is gone. Calling it twice is fine."""
        worker = self._worker
        if worker is None or not worker.alive:
            return
        if self._execution is not None:
            worker.interrupt(self._execution.id)
        await worker.send(ShutdownMessage())
        if not await worker.ended(2.0):
            worker.kill()
            await worker.ended()

    async def __aenter__(self) -> Self:
        if not self.alive:
            await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shutdown()

    @classmethod
    async def resume(
        cls,
        name: str,
        *,
        store: Store | str | None = None,
        trust: bool = False,
        on_input: Answer | None = None,
        secrets: Mapping[str, str] | None = None,
        python: str | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        max_item_bytes: int | None = None,
    ) -> Self:
        """Go on from a session's last checkpoint, after a crash or a reboot. Raises NotFound."""
        session = cls(
            name,
            store=store,
            on_input=on_input,
            secrets=secrets,
            python=python,
            cwd=cwd,
            env=env,
            max_item_bytes=max_item_bytes,
        )
        head = await asyncio.to_thread(session._head)
        await session.start()
        try:
            async with session._lock:
                await session._apply(session.store, head, trust)
        except BaseException:
            await session.shutdown()
            raise
        return session

    @property
    def alive(self) -> bool:
        """Whether there is a worker."""
        return self._worker is not None and self._worker.alive

    @property
    def pid(self) -> int | None:
        """The worker's process id."""
        return self._worker.pid if self._worker is not None and self._worker.alive else None

    @property
    def store(self) -> Store:
        """Where checkpoints go; opened on first use."""
        if not isinstance(self._store_or_url, Store):
            self._store_or_url = open_store(self._store_or_url)
        return self._store_or_url

    # -- running code --------------------------------------------------------------------

    async def execute(
        self, code: str, *, timeout: float | None = None, on_input: Answer | None = None
    ) -> Result:
        """Run a cell. What it raises, a timeout or the worker's end are in `result.error`."""
        execution = self._begin(code, timeout, on_input)
        assert execution.task is not None
        try:
            return await asyncio.shield(execution.task)
        except asyncio.CancelledError:
            if self._execution is execution:
                self._interrupt(execution)  # its task goes on until the worker has answered
            else:
                execution.task.cancel()
            raise

    def stream(
        self, code: str, *, timeout: float | None = None, on_input: Answer | None = None
    ) -> Execution:
        """Run a cell and iterate over its output as it comes; then `.result` is there.

        Leaving the loop early does not stop the cell; `interrupt()` does.
        """
        return self._begin(code, timeout, on_input)

    async def interrupt(self) -> bool:
        """Raise KeyboardInterrupt in the running cell; False when none is running."""
        execution = self._execution
        if execution is None:
            return False
        self._interrupt(execution)
        return True

    # -- freezing and bringing back ------------------------------------------------------

    async def checkpoint(
        self, reason: str = "manual", stage: str | None = None, save_to_disk: bool = True
    ) -> SessionCheckpoint:
        """Freeze the session; it is durable when this returns, unless it was to stay in memory.

        With `save_to_disk=False` a checkpoint of up to 10 MB stays in the host's memory.
        Raises CaptureFailed; the session goes on as it was.
        """
        async with self._lock:
            worker = self._alive()
            request = self._request()
            await worker.send(
                CheckpointMessage(
                    request_id=request,
                    reason=reason,
                    stage=stage,
                    save_to_disk=save_to_disk,
                    max_item_bytes=self._max_item_bytes,
                )
            )
            parts, created = await self._captured(worker, request)
            on_disk = save_to_disk or created.size_bytes > IN_MEMORY
            return await asyncio.to_thread(
                checkpoints.write,
                self.store if on_disk else self._in_memory(),
                self.subject,
                parts,
                created,
                reason=reason,
                stage=stage,
                on_disk=on_disk,
            )

    async def restore(
        self,
        reference: Reference | None = None,
        *,
        secrets: Mapping[str, str] | None = None,
        trust: bool = False,
    ) -> Report:
        """Replace the namespace by a checkpoint's (by default the head's) and move the head.

        Starts a worker if the last one died. Raises NotFound, Corrupt or Denied, and then
        the session is as it was.
        """
        async with self._lock:
            store, target = await asyncio.to_thread(self._find, reference)
            if not self.alive:
                await self._start()
            report = await self._apply(store, target, trust, secrets)
            if store is not self._memory:
                await asyncio.to_thread(store.restore, target, trust=trust)
            return report

    async def rollback(
        self,
        to: Reference | None = None,
        *,
        secrets: Mapping[str, str] | None = None,
        trust: bool = False,
    ) -> Report:
        """Go back to the head's parent or an ancestor; the head moves on to a new checkpoint."""
        async with self._lock:
            store = self.store
            reference = to.id if isinstance(to, (SessionCheckpoint, Checkpoint)) else to
            before = await asyncio.to_thread(self._head)
            target = await asyncio.to_thread(store.rollback, self.subject, reference)
            try:
                if not self.alive:
                    await self._start()
                return await self._apply(store, target, trust, secrets)
            except BaseException:
                await asyncio.to_thread(store.restore, before)
                raise

    async def fork(self, name: str | None = None) -> Session:
        """A new session, under another name and in a worker of its own, from this very moment."""
        name = name or f"{self.name}-{random_names.token_hex(3)}"
        taken = await self.checkpoint(reason=f"fork to {name}")
        await asyncio.to_thread(self.store.fork, taken.id, name)
        return await type(self).resume(
            name,
            store=self.store,
            on_input=self._on_input,
            secrets=self._secrets,
            python=self._python,
            cwd=self._cwd,
            env=self._env,
            max_item_bytes=self._max_item_bytes,
        )

    async def list(self, limit: int | None = None) -> list[Checkpoint]:
        """This session's checkpoints, newest first."""
        return await asyncio.to_thread(self.store.list, self.subject, limit=limit)

    # -- underneath ----------------------------------------------------------------------

    async def _start(self) -> None:
        environ = {key: value for key, value in os.environ.items() if _passes(key)}
        worker = WorkerProcess(self._output)
        worker.start(self._python, {**environ, **self._env}, self._cwd)
        self._early.clear()
        try:
            message = await asyncio.wait_for(worker.receive(), START_TIMEOUT)
        except BaseException:
            worker.kill()
            raise
        if not isinstance(message, ReadyMessage):
            worker.kill()
            said = "".join(text for _, text in self._early).strip().split("\n")[-1]
            raise HoldfastError(
                f"the worker did not start: {said or worker.how_it_ended}",
                hint=f"see whether `{self._python}` can import holdfast and msgspec",
            )
        self._worker = worker

    def _alive(self) -> WorkerProcess:
        if self._worker is None:
            raise UsageError(f"{self.subject} is not started", hint="await session.start()")
        if not self._worker.alive:
            raise HoldfastError(
                f"{self.subject} has no worker: {self._worker.how_it_ended}",
                hint="await session.restore() goes on from the last checkpoint",
            )
        return self._worker

    def _begin(self, code: str, timeout: float | None, on_input: Answer | None) -> Execution:
        self._alive()
        execution = Execution(self._request())
        answer = on_input or self._on_input
        execution.task = asyncio.create_task(self._run(execution, code, timeout, answer))
        return execution

    async def _run(
        self, execution: Execution, code: str, timeout: float | None, answer: Answer | None
    ) -> Result:
        try:
            async with self._lock:
                worker = self._alive()
                self._execution = execution
                for stream, text in self._early:
                    execution.output(stream, text)
                self._early.clear()
                await worker.send(ExecuteMessage(execution_id=execution.id, code=code))
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
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            left = None if deadline is None else deadline - asyncio.get_running_loop().time()
            try:
                message = await asyncio.wait_for(worker.receive(), left)
            except TimeoutError:
                if execution.timed_out is not None:
                    worker.kill()
                    deadline = None
                    continue
                assert timeout is not None
                execution.timed_out = timeout
                worker.interrupt(execution.id)
                deadline = asyncio.get_running_loop().time() + GRACE
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
                    return execution.fail("TimeoutError", text)
                case None:
                    return execution.fail("WorkerDied", worker.how_it_ended)

    def _interrupt(self, execution: Execution) -> None:
        if self._worker is not None and self._worker.alive and self._execution is execution:
            self._worker.interrupt(execution.id)

    def _output(self, stream: Stream, text: str) -> None:
        """What is written while no cell runs belongs to the next one."""
        if self._execution is not None:
            self._execution.output(stream, text)
        elif len(self._early) < 10_000:
            self._early.append((stream, text))

    async def _captured(
        self, worker: WorkerProcess, request: int
    ) -> tuple[dict[str, bytes], CheckpointCreatedMessage]:
        parts: dict[str, bytearray] = {}
        while True:
            message = await self._reply(worker, request, CaptureFailed)
            if isinstance(message, PartMessage):
                parts.setdefault(message.name, bytearray()).extend(message.data)
            elif isinstance(message, CheckpointCreatedMessage):
                return {name: bytes(data) for name, data in parts.items()}, message

    async def _apply(
        self,
        store: Store,
        target: Checkpoint,
        trust: bool,
        secrets: Mapping[str, str] | None = None,
    ) -> Report:
        worker = self._alive()
        parts = await asyncio.to_thread(checkpoints.read, store, target, trust)
        request = self._request()
        given = {key.removeprefix(_SECRET): value for key, value in os.environ.items()
                 if key.startswith(_SECRET)}  # fmt: skip
        await worker.send(
            RestoreMessage(
                request_id=request,
                checkpoint_id=target.id,
                parts=len(parts),
                secrets={**given, **self._secrets, **(secrets or {})},
            )
        )
        for name, data in parts.items():
            for piece, last in pieces(data):
                await worker.send(
                    PartMessage(request_id=request, name=name, data=bytes(piece), last=last)
                )
        while True:
            message = await self._reply(worker, request, HoldfastError)
            if isinstance(message, RestoredMessage):
                self.report = report_of(message.items)
                return self.report

    async def _reply(
        self, worker: WorkerProcess, request: int, error: type[HoldfastError]
    ) -> WorkerMessage:
        """The next message that belongs to a request."""
        while True:
            message = await worker.receive()
            if message is None:
                raise error(f"{self.subject}: {worker.how_it_ended}")
            if getattr(message, "request_id", request) != request:
                continue  # left over from a call that was cancelled
            if isinstance(message, ErrorMessage):
                raise error(f"{message.error_type}: {message.message}", hint=message.traceback)
            return message

    def _request(self) -> int:
        self._requests += 1
        return self._requests

    def _in_memory(self) -> Store:
        if self._memory is None:
            self._memory = open_store("memory://")
        return self._memory

    def _head(self) -> Checkpoint:
        head = self.store.head(self.subject)
        if head is None:
            raise NotFound(f"{self.subject} has no checkpoint")
        return head

    def _find(self, reference: Reference | None) -> tuple[Store, Checkpoint]:
        if reference is None:
            return self.store, self._head()
        text = reference if isinstance(reference, str) else reference.id
        store = self.store
        if self._memory is not None and any(cp.id == text for cp in self._memory.list()):
            store = self._memory
        found = store.resolve(text)
        if found.subject != self.subject:
            raise UsageError(
                f"{found.short} is a checkpoint of {found.subject}, not of {self.subject}",
                hint="fork it, or resume that session",
            )
        return store, found


async def _answer(worker: WorkerProcess, question: InputMessage, answer: Answer | None) -> None:
    """Ask the client; without one, or when it fails, the cell sees the end of input."""
    text: str | None = None
    try:
        if answer is not None:
            given = answer(question.prompt)
            text = await given if inspect.isawaitable(given) else given
    finally:
        await worker.send(InputResponseMessage(request_id=question.request_id, text=text))


def _passes(key: str) -> bool:
    """Whether a variable of the environment is the worker's business: keys and tokens are not."""
    return not key.startswith("HOLDFAST_")
