"""A client and a session over messages: what a worker hears from its host, a host hears from a
client, so that programs in any language can drive a session (spec/session-v1.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from holdfast.model.errors import Corrupt, HoldfastError
from holdfast.model.report import Report
from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.session_messages import (
    CheckpointCreatedMessage,
    CheckpointMessage,
    ClientMessage,
    ErrorMessage,
    ExecuteMessage,
    InputMessage,
    InputResponseMessage,
    InterruptMessage,
    ItemReport,
    Message,
    RestoredMessage,
    RestoreMessage,
    ShutdownMessage,
    decode_client,
    frame,
)
from holdfast.session.execution import Execution
from holdfast.session.result import Prompt, message_of
from holdfast.session.session import Session

_log = logging.getLogger(__name__)


class Dialogue:
    """One client of a session. Ids are the client's own; answers bear the id of their question."""

    def __init__(self, session: Session, send: Callable[[Message], None]) -> None:
        self._session = session
        self._send = send
        self._tasks: set[asyncio.Task[None]] = set()
        self._questions: dict[int, asyncio.Future[str | None]] = {}
        self._asked = 0

    def take(self, message: ClientMessage) -> None:
        """Begin what a message asks for. Requests are served in the order in which they come."""
        match message:
            case ExecuteMessage():
                self._execute(message)
            case CheckpointMessage():
                self._begin(self._checkpoint(message), message.request_id)
            case RestoreMessage():
                self._begin(self._restore(message), message.request_id)
            case InputResponseMessage():
                question = self._questions.pop(message.request_id, None)
                if question is not None and not question.done():
                    question.set_result(message.text)
            case InterruptMessage():
                self._begin(self._interrupt(), 0)
            case ShutdownMessage():
                self._begin(self._session.shutdown(), 0)

    async def finished(self) -> None:
        """Wait until all that was asked for is answered."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def leave(self) -> None:
        """The client is gone: nobody answers its cells any more. The session goes on."""
        for question in self._questions.values():
            if not question.done():
                question.set_result(None)
        self._questions.clear()

    def _begin(self, work: Coroutine[None, None, None], request: int) -> None:
        task = asyncio.create_task(self._answered(work, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(self, work: Coroutine[None, None, None], request: int) -> None:
        try:
            await work
        except HoldfastError as error:
            self._send(_failure(error, request))
        except Exception as error:  # noqa: BLE001  # the client would wait for its timeout
            fault = HoldfastError(
                f"{type(error).__name__}: {error}",
                hint="this is a fault of Holdfast: its host's log has the traceback",
            )
            _log.exception("request %d of a client failed", request)
            self._send(_failure(fault, request))

    def _execute(self, message: ExecuteMessage) -> None:
        async def ask(prompt: str) -> str | None:
            return await self._ask(message.execution_id, prompt)

        try:
            execution = self._session.stream(message.code, on_input=ask)
        except HoldfastError as error:
            self._send(_failure(error, message.execution_id))
            return
        self._begin(self._follow(execution, message.execution_id), message.execution_id)

    async def _follow(self, execution: Execution, execution_id: int) -> None:
        async for event in execution:
            self._send(type(event)(execution_id=execution_id, stream=event.stream, text=event.text))
        self._send(message_of(execution.result, execution_id))

    async def _ask(self, execution_id: int, prompt: str) -> str | None:
        self._asked += 1
        question: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._questions[self._asked] = question
        hidden = isinstance(prompt, Prompt) and prompt.password
        self._send(
            InputMessage(
                request_id=self._asked,
                execution_id=execution_id,
                prompt=str(prompt),
                password=hidden,
            )
        )
        return await question

    async def _checkpoint(self, message: CheckpointMessage) -> None:
        made = await self._session.checkpoint(message.reason, message.stage, message.save_to_disk)
        self._send(
            CheckpointCreatedMessage(
                request_id=message.request_id,
                checkpoint_id=made.id,
                size_bytes=made.size_bytes,
                serialization_method=made.serialization_method,
                items=_items(made.report),
                pause_ms=made.pause_ms,
            )
        )

    async def _restore(self, message: RestoreMessage) -> None:
        report = await self._session.restore(
            message.checkpoint_id, secrets=message.secrets, trust=message.trust
        )
        self._send(RestoredMessage(request_id=message.request_id, items=_items(report)))

    async def _interrupt(self) -> None:
        await self._session.interrupt()


async def serve(
    session: Session,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    only: type[ClientMessage] | None = None,
) -> None:
    """Speak with one client over a stream until it leaves or breaks the protocol.

    With `only`, a client may ask for nothing else.
    """
    dialogue = Dialogue(session, lambda message: writer.write(frame(message)))
    decoder = FrameDecoder()
    try:
        while data := await reader.read(1 << 18):
            for payload in decoder.feed(data):
                message = decode_client(payload)
                if only is not None and not isinstance(message, only):
                    raise Corrupt(f"only a {only.__name__} is answered here")
                dialogue.take(message)
            await writer.drain()
    except Corrupt as error:
        writer.write(frame(_failure(error, 0)))
    finally:
        dialogue.leave()
        await dialogue.finished()
        writer.close()


def _failure(error: HoldfastError, request: int) -> ErrorMessage:
    return ErrorMessage(
        error_type=error.kind, message=str(error), request_id=request, hint=error.hint or ""
    )


def _items(report: Report) -> tuple[ItemReport, ...]:
    return tuple(
        ItemReport(
            name=item.name,
            outcome=item.outcome,
            reason=item.reason,
            tier=item.tier,
            size_bytes=item.size_bytes,
        )
        for item in report.items
    )
