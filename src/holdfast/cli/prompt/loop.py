"""The prompt's loop: read, run, show, and keep. Knows nothing of terminals."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from holdfast.model.errors import HoldfastError
from holdfast.view import magics
from holdfast.view import session as views

if TYPE_CHECKING:
    from holdfast.model.report import Report
    from holdfast.session import Session
    from holdfast.session.execution import Execution


class Reader(Protocol):
    """Where cells come from."""

    async def read(self, number: int) -> str | None:
        """The next cell, or None at the end. Raises KeyboardInterrupt for one that is given up."""

    async def ask(self, prompt: str) -> str | None:
        """A line for the `input()` of a running cell."""

    def attended(self) -> AbstractContextManager[None]:
        """While it is entered, nothing that is typed between two cells gets lost."""


class Loop:
    """Runs what a reader gives in a session, until it ends."""

    def __init__(self, session: Session, reader: Reader, number: int = 1) -> None:
        self._session = session
        self._reader = reader
        self._number = number  # of the next cell
        self._gone = False  # whether the last cell was left without a worker

    async def run(self) -> None:
        """Until the reader ends or the user leaves."""
        with self._reader.attended():
            await self._run()

    async def _run(self) -> None:
        while True:
            try:
                cell = await self._reader.read(self._number)
            except KeyboardInterrupt:
                continue
            if cell is None:
                return
            try:
                command = magics.parse(cell, self._session.name)
                if command is None:
                    await self._cell(cell)
                elif command.name == "quit":
                    return
                else:
                    await self._magic(command)
            except HoldfastError as error:
                self._complain(error)

    # -- cells ---------------------------------------------------------------------------

    async def _cell(self, code: str) -> None:
        if not code.strip():
            return
        execution = self._begun(code)
        with self._interrupting():
            async for event in execution:
                into = sys.stderr if event.stream == "stderr" else sys.stdout
                into.write(event.text)
                into.flush()
        result = execution.result
        self._number = result.execution_count + 1 if result.execution_count else self._number
        if result.resumed_from is not None:
            found = await asyncio.to_thread(self._session.store.resolve, result.resumed_from)
            self._tell(f"the session was brought back from {found.short} ({found.reason})")
        before, self._gone = self._gone, result.error is not None and bool(result.error.hint)
        if result.error is not None:
            text = result.error.traceback or str(result.error)
            self._tell(text.rstrip("\n"))
            if self._gone:
                self._tell(f"hint: {await self._way_on(before)}")
            return
        shown = views.value_of(result)
        if shown:
            print(shown, flush=True)

    def _begun(self, code: str) -> Execution:
        """The cell, which runs also when a checkpoint before it has failed: that is told."""
        try:
            return self._session.stream(code, on_input=self._reader.ask)
        except HoldfastError as error:
            execution = self._session.stream(code, on_input=self._reader.ask)  # told only once
            self._complain(error)
            self._tell("that was the checkpoint after an earlier cell; the next has its work, too")
            return execution

    async def _way_on(self, again: bool) -> str:
        """What to do at a prompt without a worker; `again` when the next cell had no other."""
        session = self._session
        head = await asyncio.to_thread(session.store.head, session.subject)
        if head is None:
            with suppress(HoldfastError):  # the same in other words
                await session.flush()  # the first one may be on its way
            head = await asyncio.to_thread(session.store.head, session.subject)
        if head is None:
            return f"nothing was checkpointed yet; leave, and holdfast repl {session.name} begins"
        if again:
            return "%restore ID goes on from one of the checkpoints that %log shows"
        return "the next cell goes on from the last checkpoint"

    @contextmanager
    def _interrupting(self) -> Iterator[None]:
        """Ctrl-C stops the cell, not the prompt."""
        loop = asyncio.get_running_loop()
        asked: list[asyncio.Task[bool]] = []

        def interrupt() -> None:
            asked.append(loop.create_task(self._session.interrupt()))

        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    # -- commands --------------------------------------------------------------------------

    async def _magic(self, command: magics.Magic) -> None:
        given = command.arguments
        match command.name:
            case "help":
                print(views.help_page())
            case "checkpoint":
                made = await self._session.checkpoint(reason=" ".join(given) or "manual")
                self._tell(f"{made.short}: {made.reason}")
            case "log":
                await self._session.flush()
                session = self._session
                print(await asyncio.to_thread(views.log_page, session.store, session.subject))
            case "whos":
                await self._whos()
            case "diff":
                await self._diff(*given)
            case "rollback":
                await self._moved(await self._session.rollback(*given))
            case "restore":
                await self._moved(await self._session.restore(*given))
            case "fork":
                other = await self._session.fork(given[0])
                await other.shutdown()
                self._tell(f"{other.subject} is there: holdfast repl {other.name}")

    async def _moved(self, report: Report) -> None:
        session = self._session
        for line in await asyncio.to_thread(views.moved, session.store, session.subject, report):
            self._tell(line)
        head = await asyncio.to_thread(session.store.head, session.subject)
        if head is not None:  # it was just restored, so whoever signed it is trusted
            self._number = await asyncio.to_thread(views.next_cell, session.store, head, True)

    async def _whos(self) -> None:
        session = self._session
        found = await session.variables()
        await session.flush()
        page = views.whos_page
        print(await asyncio.to_thread(page, session.store, session.subject, found))

    async def _diff(self, a: str = "~1", b: str | None = None) -> None:
        await self._session.flush()
        diff = await self._session.diff(a, b)
        print(await asyncio.to_thread(views.diff_page, self._session.store, diff))

    def _complain(self, error: HoldfastError) -> None:
        self._tell(f"error: {error}")
        if error.hint:
            self._tell(f"hint: {error.hint}")

    def _tell(self, message: str) -> None:
        sys.stdout.flush()
        print(message, file=sys.stderr, flush=True)
