"""A capture or a restore in the worker: a conversation that ends in time, or soon after.

Nothing is cut in the middle: half a restore would leave the worker waiting for parts that never
come.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from itertools import chain
from typing import Any, TypeVar

from holdfast.model.errors import CaptureFailed, Corrupt, HoldfastError
from holdfast.protocol.frames import pieces
from holdfast.protocol.session_messages import (
    AheadMessage,
    CapturingMessage,
    CheckpointMessage,
    CompleteMessage,
    ErrorMessage,
    InspectMessage,
    Message,
    PartMessage,
    RestoredMessage,
    RestoreMessage,
    WorkerMessage,
)
from holdfast.session.captured import Captured, Gathering
from holdfast.session.mapped import Mapped
from holdfast.session.process import WorkerProcess

_T = TypeVar("_T")

WORK_TIMEOUT = 600.0  # for a capture or a restore in the worker


class Work:
    """A capture or a restore that is under way in the worker."""

    def __init__(self, worker: WorkerProcess, request: int, what: str, where: str) -> None:
        self.id = request
        self._worker = worker
        self._what = f"{where}: the {what}"
        # Done when somebody interrupted it.
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def interrupt(self) -> None:
        """End it soon; whoever waits for it gets CaptureFailed."""
        if not self._stopped.done():
            self._stopped.set_result(None)
        self._worker.interrupt(self.id)

    def cancelled(self) -> CaptureFailed:
        """What to raise when nobody waits for it before it has begun."""
        return CaptureFailed(f"{self._what} was cancelled")

    async def within(
        self,
        conversation: Coroutine[Any, Any, _T],
        timeout: float | None,
        grace: float,
        hint: str,
    ) -> _T:
        """The conversation's result; raises CaptureFailed when it takes too long."""
        task = asyncio.create_task(conversation)
        late = ""
        try:
            either: set[asyncio.Future[Any]] = {task, self._stopped}
            await asyncio.wait(either, timeout=timeout, return_when="FIRST_COMPLETED")
            if not task.done():
                if not self._stopped.done():
                    late = f"{self._what} took longer than {timeout:g} s"
                    self._worker.interrupt(self.id)
                await asyncio.wait({task}, timeout=grace)
            if not task.done():
                raise CaptureFailed(
                    f"{late or f'{self._what} was interrupted'}, and the worker "
                    f"did not react within {grace:g} s: it is stopped or stuck",
                    hint="shutdown() ends it; " + hint,
                )
            if late and isinstance(task.exception(), HoldfastError):
                raise CaptureFailed(f"{late}; the session is as it was") from task.exception()
            return task.result()
        finally:
            task.cancel()


TakeAhead = Callable[[AheadMessage, int], None]  # with a file, which it is to close


async def capture(
    worker: WorkerProcess, asked: CheckpointMessage, ahead: TakeAhead | None = None
) -> Captured | CapturingMessage | None:
    """The parts of a checkpoint that was asked for; None when the worker ended over it. Raises
    CaptureFailed.

    When a copy of the worker makes them, the message that says so. `ahead` takes what comes before.
    """
    gathering = Gathering()
    while True:
        message = await _reply(worker, asked.request_id, CaptureFailed)
        if message is None or isinstance(message, CapturingMessage):
            return message
        try:
            if isinstance(message, AheadMessage):
                if ahead is None:
                    raise Corrupt("nobody asked for memory ahead of a capture")
                ahead(message, worker.take_file())
                continue
            captured = gathering.take(message)
        except Corrupt as error:
            raise CaptureFailed(f"the worker broke the protocol: {error}") from None
        if captured is not None:
            return captured


async def restore(
    worker: WorkerProcess, asked: RestoreMessage, parts: Mapping[str, bytes], mapped: Mapped
) -> RestoredMessage | None:
    """Replace the namespace; None when the worker ended over it.

    Raises HoldfastError, and then the namespace is as it was.
    """
    request = asked.request_id
    worker.send(asked, mapped.files)
    pieces_of = (
        PartMessage(request_id=request, name=name, data=bytes(piece), last=last)
        for name, data in parts.items()
        for piece, last in pieces(data)
    )
    messages: Iterator[Message] = chain(mapped.messages, pieces_of)
    try:
        for part in messages:
            worker.send(part)
            await worker.drained()
    finally:
        for part in messages:  # half a restore would leave the worker waiting for the rest
            worker.send(part)
    while True:
        message = await _reply(worker, request, HoldfastError)
        if message is None or isinstance(message, RestoredMessage):
            return message


async def look(
    worker: WorkerProcess, asked: CompleteMessage | InspectMessage
) -> WorkerMessage | None:
    """The answer to what was asked about the namespace; None when the worker ended over it."""
    return await _reply(worker, asked.request_id, HoldfastError)


async def _reply(
    worker: WorkerProcess, request: int, error: type[HoldfastError]
) -> WorkerMessage | None:
    """The next message that belongs to a request; None when the worker has ended."""
    while True:
        message = await worker.receive()
        if message is None:
            return None
        if getattr(message, "request_id", None) != request:
            if isinstance(message, (AheadMessage, CapturingMessage)):
                os.close(worker.take_file())
            continue  # left over from a call that was cancelled
        if isinstance(message, ErrorMessage):
            raised = error(f"{message.error_type}: {message.message}", hint=message.hint or None)
            raised.add_note(message.traceback.rstrip())
            raise raised
        return message
