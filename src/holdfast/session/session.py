"""A live Python session: the object that users hold. One call at a time reaches the worker."""

from __future__ import annotations

import asyncio
import secrets as random_names
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from holdfast.model.checkpoint import Checkpoint, Manifest
from holdfast.model.errors import BadInput, HoldfastError, UsageError
from holdfast.model.fault_points import fault_point
from holdfast.model.report import Report
from holdfast.model.subject import KINDS, Subject
from holdfast.model.tracing import span
from holdfast.protocol.session_messages import Variable
from holdfast.session import checks, leaving
from holdfast.session.autosave import Automatic
from holdfast.session.checkpoints import Reference, SessionCheckpoint
from holdfast.session.driver import Answer, Driver
from holdfast.session.execution import Execution
from holdfast.session.history import History
from holdfast.session.keeper import Keeper
from holdfast.session.result import Result
from holdfast.session.settings import Options, Settings
from holdfast.session.transaction import Transaction
from holdfast.session.variables import SessionDiff
from holdfast.session.work import WORK_TIMEOUT
from holdfast.session.workers import Workers
from holdfast.store import Store
from holdfast.store.retention import Policy


class Session:
    """A Python namespace in a worker process, which can be frozen and brought back.

    A name that has checkpoints is taken: `Session.resume(name)` goes on with it, and
    `fresh=True` begins a new line under it.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        store: Store | str | None = None,
        fresh: bool = False,
        on_input: Answer | None = None,
        secrets: Mapping[str, str | bytes] | None = None,
        keep_secrets: bool | Iterable[str] | None = None,
        leave_out: Iterable[str] | None = None,
        python: str | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        max_item_bytes: int | None = None,
        max_checkpoint_bytes: int | None = None,
        memory_limit: int | None = None,
        cpu_limit: float | None = None,
        auto_checkpoint: Automatic = None,
        keep: Policy | None = None,
    ) -> None:
        """Nothing is started yet, and no store is opened. Raises BadInput."""
        options = Options(
            on_input=on_input,
            secrets=secrets,
            keep_secrets=keep_secrets,
            leave_out=leave_out,
            python=python,
            cwd=cwd,
            env=env,
            max_item_bytes=max_item_bytes,
            max_checkpoint_bytes=max_checkpoint_bytes,
            memory_limit=memory_limit,
            cpu_limit=cpu_limit,
            auto_checkpoint=auto_checkpoint,
            keep=keep,
        )
        self._begin(name, store, checks.flag("fresh", fresh), Settings.of(options))

    @classmethod
    def _with(
        cls,
        workers: Workers,
        name: str | None,
        store: Store | str | None,
        fresh: bool,
        settings: Settings,
        ended: Callable[[Session], None] | None = None,
    ) -> Self:
        """A session with workers that somebody else supplies, for a pool and for forks; `ended` is
        told at the end of its `shutdown`. Raises BadInput."""
        made = cls.__new__(cls)
        made._begin(name, store, fresh, settings, workers, ended)
        return made

    def _begin(
        self,
        name: str | None,
        store: Store | str | None,
        fresh: bool,
        settings: Settings,
        workers: Workers | None = None,
        ended: Callable[[Session], None] | None = None,
    ) -> None:
        # A name of our own making is nobody else's: no store is opened to see.
        self._ended = ended
        self._named = name is not None
        self._fresh = fresh or not self._named
        self.subject = _subject(name if self._named else f"session-{random_names.token_hex(4)}")
        self.name = self.subject.name
        self._settings = settings
        self._history = History(self.subject, store, settings.keep)
        self._workers = workers or settings.launch
        self._driver = Driver(self.subject, self._workers, settings.limits)
        self._keeper = Keeper(self.subject, self._driver, self._history, settings)
        self._driver.on_start = partial(leaving.opened, self._keeper)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.subject} {self._driver.state}>"

    # -- life ----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Start a worker with an empty namespace.

        Raises UsageError when it runs already, and Conflict when the name has checkpoints or
        somebody else runs it.
        """
        async with self._driver.lock:
            if self.alive:
                raise UsageError(f"{self.subject} runs already")
            try:
                if self._named:
                    await self._keeper.own()  # nobody can take the name from here on
                if not self._fresh:
                    hint = (
                        f"Session.resume({self.name!r}) goes on with it; "
                        "fresh=True begins a new line"
                    )
                    await asyncio.to_thread(self._history.check_free, self.subject, hint)
                fault_point("the name is free")
                await self._driver.start()
            except BaseException:
                await self._keeper.disown()
                raise
            self._history.line.at = None
        self._keeper.autosave.start()
        return self

    async def shutdown(self) -> None:
        """End the worker; what is not in a checkpoint is gone. Calling it twice is fine.

        Automatic checkpoints that are due are made first; one that failed is raised here.
        Every other call but `start` raises UsageError from then on.
        """
        try:
            if not self._driver.closed:
                await self._keeper.finish()
        finally:
            await self._driver.shutdown()
            await self._keeper.disown()
            leaving.ended(self._keeper)
            if self._ended is not None:
                self._ended(self)
        await asyncio.to_thread(self._history.tidy)
        self._keeper.saving.check()

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
        try:
            await self.shutdown()
        except HoldfastError as failure:
            if error is None:
                raise
            error.add_note(f"the session ended with another error: {failure}")

    @classmethod
    async def resume(
        cls,
        name: str,
        *,
        store: Store | str | None = None,
        trust: bool = False,
        **options: Unpack[Options],
    ) -> Self:
        """Go on from a session's last checkpoint, after a crash or a reboot.

        Raises NotFound, and Conflict while somebody else runs it.
        """
        return await cls(_subject(name).name, store=store, **options)._begin_at_head(trust)

    @property
    def alive(self) -> bool:
        """Whether there is a worker."""
        return self._driver.alive

    @property
    def pid(self) -> int | None:
        """The worker's process id."""
        return self._driver.pid

    @property
    def report(self) -> Report | None:
        """What the last restore did with each name."""
        return self._keeper.report

    @property
    def store(self) -> Store:
        """Where checkpoints go; opened on first use."""
        return self._history.store

    # -- running code --------------------------------------------------------------------

    async def execute(
        self,
        code: str,
        *,
        timeout: float | None = None,
        on_input: Answer | None = None,
        check: bool | None = None,
    ) -> Result:
        """Run a cell. What it raises, a timeout or the worker's end are in `result.error`.

        With `check=True`, which is the default inside a transaction, they are raised as
        CellFailed. Indentation that all lines share is taken off. Raises BadInput for code that
        is no text, and what went wrong in a checkpoint beside the session since the last call.
        """
        execution = self.stream(code, timeout=timeout, on_input=on_input)
        try:
            with span("session.execute", subject=str(self.subject)):
                result = await asyncio.shield(execution.done)
        except asyncio.CancelledError:
            # A running cell's task goes on until the worker has answered.
            if not self._driver.interrupt(execution) and execution.task is not None:
                execution.task.cancel()
            raise
        checked = self._keeper.autosave.held if check is None else check
        return result.check() if checked else result

    def stream(
        self, code: str, *, timeout: float | None = None, on_input: Answer | None = None
    ) -> Execution:
        """Run a cell and iterate over its output as it comes; then `.result` is there.

        Leaving the loop early does not stop the cell; `interrupt()` does.
        """
        checks.text("the code of a cell", code)
        checks.seconds("timeout", timeout)
        self._keeper.saving.check()
        return self._driver.begin(code, timeout, on_input or self._settings.on_input)

    async def interrupt(self) -> bool:
        """Raise KeyboardInterrupt in the running cell; False when nothing is running.

        A checkpoint or a restore that is under way ends as well: its call raises CaptureFailed.
        """
        return self._driver.interrupt()

    # -- freezing and bringing back ------------------------------------------------------

    async def checkpoint(
        self,
        reason: str = "manual",
        stage: str | None = None,
        save_to_disk: bool = True,
        *,
        timeout: float | None = WORK_TIMEOUT,
    ) -> SessionCheckpoint:
        """Freeze the session; it is durable when this returns, unless it was to stay in memory.

        With `save_to_disk=False` a checkpoint of up to 10 MB stays in the host's memory. Cells
        may run again as soon as the worker has handed its state over. Raises CaptureFailed, also
        after `timeout` seconds of capturing; the session goes on as it was. Raises BadInput when
        an argument is not what it should be.
        """
        checks.text("reason", reason)
        if stage is not None:
            checks.text("stage", stage)
        checks.flag("save_to_disk", save_to_disk)
        checks.seconds("timeout", timeout)
        self._driver.worker()  # raises UsageError when there is none
        self._keeper.saving.check()
        with span("session.checkpoint", subject=str(self.subject)):
            return await self._keeper.checkpoint(reason, stage, save_to_disk, timeout)

    async def flush(self) -> None:
        """Wait until all that was frozen so far, or was to be frozen by itself, is durable.

        Raises what went wrong with it.
        """
        async with self._driver.lock:
            await self._keeper.settle()
            self._keeper.note_owed()
        self._keeper.saving.check()

    async def restore(
        self,
        reference: Reference | None = None,
        *,
        secrets: Mapping[str, str | bytes] | None = None,
        trust: bool = False,
        timeout: float | None = WORK_TIMEOUT,
    ) -> Report:
        """Replace the namespace by a checkpoint's (by default the head's) and move the head.

        A `Path`, or a text that begins with `/`, is a file that `export` wrote; it is taken into
        the store, and may be of another session. The head is wherever this session, another one
        or the command line moved it. Starts a worker if the last one died. Raises NotFound,
        Corrupt or Denied, and then the session is as it was, or WorkerDied when the checkpoint
        ends a new worker as well. After `timeout` seconds in the worker it raises CaptureFailed.
        """
        self._driver.check_open()
        checks.seconds("timeout", timeout)
        given = self._settings.given(secrets)
        self._keeper.saving.check()
        with span("session.restore", subject=str(self.subject)):
            async with self._driver.lock:
                await self._keeper.settle()
                report = await self._driver.to_the_end(
                    self._keeper.restore(reference, given, trust, timeout)
                )
            await self._keeper.autosave.catch_up()
            return report

    async def rollback(
        self,
        to: Reference | None = None,
        *,
        secrets: Mapping[str, str | bytes] | None = None,
        trust: bool = False,
        timeout: float | None = WORK_TIMEOUT,
    ) -> Report:
        """Go back to before this session's last checkpoint, or to a given one.

        The head moves on to a new checkpoint, so that this can be undone. Raises NotFound.
        """
        self._driver.check_open()
        checks.seconds("timeout", timeout)
        given = self._settings.given(secrets)
        self._keeper.saving.check()
        with span("session.rollback", subject=str(self.subject)):
            async with self._driver.lock:
                await self._keeper.settle()
                return await self._driver.to_the_end(
                    self._keeper.rollback(to, given, trust, timeout)
                )

    def transaction(self, reason: str = "transaction") -> AbstractAsyncContextManager[Transaction]:
        """`async with session.transaction():` goes back to its beginning when it raises.

        It begins with a checkpoint. Inside, a cell's error is raised as CellFailed unless
        `check=False` says otherwise, and no automatic checkpoint is made.
        """
        checks.text("reason", reason)
        return Transaction(self, self._keeper.autosave, reason)

    async def fork(self, name: str | None = None) -> Session:
        """A new session, under another name and in a worker of its own, from this very moment.

        That moment is the new session's first checkpoint; this session makes none. Raises
        Conflict when the name is taken, and CaptureFailed.
        """
        other = _subject(name if name is not None else f"{self.name}-{random_names.token_hex(3)}")
        self._driver.worker()  # raises UsageError when there is none
        self._keeper.saving.check()
        with span("session.fork", subject=str(self.subject)):
            made: list[Checkpoint] = []

            async def freeze() -> None:
                made.append(await self._keeper.freeze_as(other))

            try:
                async with self._driver.lock:
                    await self._driver.to_the_end(freeze())
                fault_point("the fork is stored")
                forked = self._with(self._workers, other.name, self.store, True, self._settings)
                return await forked._begin_at_head()
            except BaseException as error:
                if made:  # or the name would be taken by a session that nobody has
                    await self._keeper.take_back(made, error)
                raise

    async def export(self, path: str | Path, reference: Reference | None = None) -> Checkpoint:
        """Write a checkpoint, by default the head, to a file that `restore` and any store read."""
        target = Path(checks.path("path", path))
        return await asyncio.to_thread(self._history.export, reference, target)

    # -- looking -------------------------------------------------------------------------

    async def complete(self, text: str) -> tuple[str, ...]:
        """What the name at the end of a text could be: `np.ar` may give `np.array`.

        Nothing while a cell runs. Properties are not asked for their values.
        """
        checks.text("the text to complete", text)
        self._driver.worker()
        if self._driver.busy:
            return ()
        async with self._driver.lock:
            try:
                return await self._driver.complete(text)
            except HoldfastError:
                return ()  # whoever types goes on typing

    async def variables(self) -> tuple[Variable, ...]:
        """The variables that are there now, in the order in which they came."""
        self._driver.worker()
        async with self._driver.lock:
            return await self._driver.variables()

    async def list(self, limit: int | None = None) -> list[Checkpoint]:
        """This session's checkpoints, newest first."""
        return await asyncio.to_thread(self.store.list, self.subject, limit=limit)

    async def show(self, reference: Reference | None = None) -> Manifest:
        """A checkpoint of this session, by default the head, with its parts."""

        def look() -> Manifest:
            store, found = self._history.find(reference)
            return store.show(found)

        return await asyncio.to_thread(look)

    async def diff(self, a: Reference = "~1", b: Reference | None = None) -> SessionDiff:
        """What changed from one checkpoint of this session to another; `print` shows it.

        By default from the head's parent to the head. Raises NotFound.
        """

        def compare() -> SessionDiff:
            (before, old), (after, new) = self._history.find(a), self._history.find(b)
            if before is not after:
                raise UsageError(
                    "one of the two checkpoints is in memory and the other is not",
                    hint="compare two of the same kind",
                )
            return SessionDiff.of(before, before.diff(old, new))

        return await asyncio.to_thread(compare)

    # -- underneath ----------------------------------------------------------------------

    async def _begin_at_head(self, trust: bool = False) -> Self:
        try:
            async with self._driver.lock:
                await self._driver.to_the_end(self._keeper.begin_at_head(trust))
        except BaseException:
            await self._driver.shutdown()
            await self._keeper.disown()
            leaving.ended(self._keeper)
            raise
        self._keeper.autosave.start()
        return self


def _subject(name: object) -> Subject:
    """The subject of a session's name, with or without its kind. Raises BadInput."""
    name = checks.text("the name of a session", name).removeprefix("session/")
    kind, slash, rest = name.partition("/")
    if slash and kind in KINDS:
        raise BadInput(
            f"{name!r} is no name of a session: {kind}/ is the kind of another subject",
            hint=f"a name without a kind, such as {rest!r}",
        )
    return Subject("session", name)
