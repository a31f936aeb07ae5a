"""One running cell on the host's side: its output as it comes, and in the end its result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from holdfast.protocol.session_messages import OutputMessage, ResultMessage, Stream
from holdfast.session.result import ErrorInfo, Result, value_of

# A cell that prints for ever must not take the host's memory; the rest is counted as lost.
OUTPUT_LIMIT = 64 << 20


class Execution:
    """Collects a cell's output; an async iterator over it, whose `result` is there at the end."""

    def __init__(self, execution_id: int) -> None:
        self.id = execution_id
        self.done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None  # may go on after the cell has ended
        self.resumed_from: str | None = None
        self._texts: dict[Stream, list[str]] = {"stdout": [], "stderr": []}
        self._kept = 0
        self._truncated = False
        self._events: asyncio.Queue[OutputMessage | None] = asyncio.Queue()
        self._started = time.perf_counter()
        self._stopped: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"<Execution {self.id} {self.result if self._has_result else 'running'}>"

    def output(self, stream: Stream, text: str) -> None:
        """Take what the worker wrote; from the limit on nothing, so that it ends there and has no
        hole."""
        room = OUTPUT_LIMIT - self._kept
        if len(text) > room:
            self._truncated = True
            text = text[:room]
        if not text:
            return
        self._kept += len(text)
        self._texts[stream].append(text)
        self._events.put_nowait(OutputMessage(execution_id=self.id, stream=stream, text=text))

    def lost(self, characters: int) -> None:
        """So much was written before this cell that it could not all be kept."""
        self._truncated = True
        self.output("stderr", f"[{characters} characters written before this cell are lost]\n")

    def stop(self, kind: str, why: str) -> None:
        """The host has interrupted it, for this reason, which is then its error."""
        self._stopped = (kind, why)

    @property
    def stopped(self) -> tuple[str, str] | None:
        return self._stopped

    def finish(self, message: ResultMessage) -> None:
        """The worker's answer, with the output that came before it."""
        error = ErrorInfo.of(message.error) if message.error is not None else None
        if self._stopped is not None and error is not None and error.type == "KeyboardInterrupt":
            kind, why = self._stopped
            error = ErrorInfo(type=kind, message=why, traceback=error.traceback)
        self._end(
            Result(
                value=value_of(message),
                type_name=message.type_name,
                stdout=self._text("stdout"),
                stderr=self._text("stderr"),
                error=error,
                duration=message.duration,
                execution_count=message.execution_count,
                truncated=self._truncated,
                resumed_from=self.resumed_from,
            )
        )

    def fail(self, kind: str, message: str, hint: str = "") -> None:
        """The cell has no answer: its worker is gone."""
        self._end(
            Result(
                stdout=self._text("stdout"),
                stderr=self._text("stderr"),
                error=ErrorInfo(type=kind, message=message, hint=hint),
                duration=time.perf_counter() - self._started,
                truncated=self._truncated,
            )
        )

    def close(self, error: BaseException | None = None) -> None:
        """No more output will come; without a result, this is why."""
        if not self.done.done():
            if error is None or isinstance(error, asyncio.CancelledError):
                self.done.cancel()
            else:
                self.done.set_exception(error)
        self._events.put_nowait(None)

    @property
    def result(self) -> Result:
        """The finished cell; raises RuntimeError while it runs."""
        if not self._has_result:
            raise RuntimeError("the cell is still running")
        return self.done.result()

    @property
    def _has_result(self) -> bool:
        return self.done.done() and not self.done.cancelled() and self.done.exception() is None

    async def __aiter__(self) -> AsyncIterator[OutputMessage]:
        while True:
            event = await self._events.get()
            if event is None:
                break
            yield event
        await self.done  # an error of the session itself is raised here

    def _text(self, stream: Stream) -> str:
        return "".join(self._texts[stream])

    def _end(self, result: Result) -> None:
        if not self.done.done():
            self.done.set_result(result)
        self.close()
