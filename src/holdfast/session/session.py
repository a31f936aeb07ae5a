"""A live Python session: the object that users hold. One call at a time reaches the worker."""

from __future__ import annotations

import asyncio
import os
import secrets as random_names
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, NotFound, UsageError
from holdfast.model.report import Report
from holdfast.model.subject import KINDS, Subject
from holdfast.protocol.session_messages import RestoredMessage
from holdfast.session import checkpoints, checks
from holdfast.session.checkpoints import Reference, SessionCheckpoint, report_of
from holdfast.session.driver import WORK_TIMEOUT, Answer, Driver, Launch
from holdfast.session.execution import Execution
from holdfast.session.line import Line
from holdfast.session.result import Result
from holdfast.store import Store, open_store

IN_MEMORY = 10 << 20  # a checkpoint up to this size may stay in memory when asked
_SECRET = "HOLDFAST_SECRET_"


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
        secrets: Mapping[str, str] | None = None,
        python: str | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        max_item_bytes: int | None = None,
    ) -> None:
        self.subject = _subject(name or f"session-{random_names.token_hex(4)}")
        self.name = self.subject.name
        # A name of our own making is nobody else's: no store is opened to see.
        self._fresh = fresh or not name
        self.report: Report | None = None  # of the last restore
        self._store_or_url = store
        self._memory: Store | None = None
        self._line = Line(self.subject)
        self._on_input = on_input
        self._secrets = checks.texts("secrets", secrets)
        self._max_item_bytes = checks.size("max_item_bytes", max_item_bytes)
        self._launch = Launch(
            python=python or sys.executable,
            cwd=Path(cwd) if cwd is not None else None,
            env=dict(env or {}),
        )
        self._driver = Driver(self.subject, self._launch)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.subject} {self._driver.state}>"

    # -- life ----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Start a worker with an empty namespace.

        Raises UsageError when it runs already, and Conflict when the name has checkpoints.
        """
        async with self._driver.lock:
            if self.alive:
                raise UsageError(f"{self.subject} runs already")
            if not self._fresh:
                await asyncio.to_thread(self._check_free)
            await self._driver.start()
            self._line.at = None
        return self

    async def shutdown(self) -> None:
        """End the worker; what is not in a checkpoint is gone. Calling it twice is fine.

        Every other call but `start` raises UsageError from then on.
        """
        await self._driver.shutdown()

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
        return await session._begin_at(await asyncio.to_thread(session._head), trust)

    @property
    def alive(self) -> bool:
        """Whether there is a worker."""
        return self._driver.alive

    @property
    def pid(self) -> int | None:
        """The worker's process id."""
        return self._driver.pid

    @property
    def store(self) -> Store:
        """Where checkpoints go; opened on first use."""
        if not isinstance(self._store_or_url, Store):
            self._store_or_url = open_store(self._store_or_url)
        return self._store_or_url

    # -- running code --------------------------------------------------------------------

    async def execute(
        self,
        code: str,
        *,
        timeout: float | None = None,
        on_input: Answer | None = None,
        check: bool = False,
    ) -> Result:
        """Run a cell. What it raises, a timeout or the worker's end are in `result.error`.

        With `check=True` they are raised as CellFailed. Indentation that all lines share is
        taken off. Raises BadInput for code that is no text.
        """
        execution = self.stream(code, timeout=timeout, on_input=on_input)
        assert execution.task is not None
        try:
            result = await asyncio.shield(execution.task)
        except asyncio.CancelledError:
            # A running cell's task goes on until the worker has answered.
            if not self._driver.interrupt(execution):
                execution.task.cancel()
            raise
        return result.check() if check else result

    def stream(
        self, code: str, *, timeout: float | None = None, on_input: Answer | None = None
    ) -> Execution:
        """Run a cell and iterate over its output as it comes; then `.result` is there.

        Leaving the loop early does not stop the cell; `interrupt()` does.
        """
        checks.text("the code of a cell", code)
        checks.seconds("timeout", timeout)
        return self._driver.begin(code, timeout, on_input or self._on_input)

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

        With `save_to_disk=False` a checkpoint of up to 10 MB stays in the host's memory.
        Raises CaptureFailed, also after `timeout` seconds of capturing; the session goes on as
        it was. Raises BadInput when an argument is not what it should be.
        """
        checks.text("reason", reason)
        if stage is not None:
            checks.text("stage", stage)
        checks.flag("save_to_disk", save_to_disk)
        checks.seconds("timeout", timeout)
        async with self._driver.lock:
            return await self._driver.to_the_end(self._freeze(reason, stage, save_to_disk, timeout))

    async def restore(
        self,
        reference: Reference | None = None,
        *,
        secrets: Mapping[str, str] | None = None,
        trust: bool = False,
        timeout: float | None = WORK_TIMEOUT,
    ) -> Report:
        """Replace the namespace by a checkpoint's (by default the head's) and move the head.

        The head is wherever this session, another one or the command line moved it.
        Starts a worker if the last one died. Raises NotFound, Corrupt or Denied, and then
        the session is as it was, or WorkerDied when the checkpoint ends a new worker as well.
        After `timeout` seconds in the worker it raises CaptureFailed.
        """
        self._driver.check_open()
        given = self._given(secrets, timeout)
        async with self._driver.lock:
            return await self._driver.to_the_end(self._restore(reference, given, trust, timeout))

    async def rollback(
        self,
        to: Reference | None = None,
        *,
        secrets: Mapping[str, str] | None = None,
        trust: bool = False,
        timeout: float | None = WORK_TIMEOUT,
    ) -> Report:
        """Go back to before this session's last checkpoint, or to a given one.

        The head moves on to a new checkpoint, so that this can be undone. Raises NotFound.
        """
        self._driver.check_open()
        given = self._given(secrets, timeout)
        async with self._driver.lock:
            return await self._driver.to_the_end(self._rollback(to, given, trust, timeout))

    async def fork(self, name: str | None = None) -> Session:
        """A new session, under another name and in a worker of its own, from this very moment.

        That moment is the new session's first checkpoint; this session makes none. Raises
        Conflict when the name is taken, and CaptureFailed.
        """
        other = _subject(name or f"{self.name}-{random_names.token_hex(3)}")
        self._driver.worker()  # raises UsageError when there is none
        async with self._driver.lock:
            first = await self._driver.to_the_end(self._freeze_as(other))
        forked = type(self)(
            other.name,
            store=self.store,
            on_input=self._on_input,
            secrets=self._secrets,
            python=self._launch.python,
            cwd=self._launch.cwd,
            env=self._launch.env,
            max_item_bytes=self._max_item_bytes,
        )
        return await forked._begin_at(first, trust=False)

    async def list(self, limit: int | None = None) -> list[Checkpoint]:
        """This session's checkpoints, newest first."""
        return await asyncio.to_thread(self.store.list, self.subject, limit=limit)

    # -- underneath ----------------------------------------------------------------------

    async def _begin_at(self, checkpoint: Checkpoint, trust: bool) -> Self:
        """Start with a checkpoint's namespace, and go on from there."""
        try:
            given = self._given(None)
            async with self._driver.lock:
                await self._driver.to_the_end(self._apply(self.store, checkpoint, given, trust))
                self._line.at = checkpoint
        except BaseException:
            await self.shutdown()
            raise
        return self

    async def _freeze(
        self, reason: str, stage: str | None, save_to_disk: bool, timeout: float | None
    ) -> SessionCheckpoint:
        parts, created = await self._driver.capture(
            reason, stage, save_to_disk, self._max_item_bytes, timeout
        )
        # Counted here: what a worker says about itself is not relied upon.
        on_disk = save_to_disk or sum(map(len, parts.values())) > IN_MEMORY
        made = await asyncio.to_thread(
            checkpoints.write,
            self.store if on_disk else self._in_memory(),
            self.subject,
            parts,
            created,
            parents=self._line.parents() if on_disk else ("head",),
            reason=reason,
            stage=stage,
            on_disk=on_disk,
        )
        if on_disk:
            self._line.at = made.checkpoint
        return made

    async def _freeze_as(self, other: Subject) -> Checkpoint:
        """This very moment as the first checkpoint of another session."""
        store, hint, reason = self.store, "choose another name", f"fork of {self.subject}"
        await asyncio.to_thread(checkpoints.check_free, store, other, hint)
        parts, created = await self._driver.capture(reason, None, True, self._max_item_bytes)
        made = await asyncio.to_thread(
            checkpoints.write,
            store,
            other,
            parts,
            created,
            parents=self._line.parents(),
            reason=reason,
            stage=None,
            on_disk=True,
            new=True,
        )
        return made.checkpoint

    async def _restore(
        self,
        reference: Reference | None,
        secrets: Mapping[str, str],
        trust: bool,
        timeout: float | None,
    ) -> Report:
        store, target = await asyncio.to_thread(self._find, reference)
        report = await self._apply(store, target, secrets, trust, timeout)
        if store is not self._memory:
            self._line.at = await asyncio.to_thread(store.restore, target, trust=trust)
        return report

    async def _rollback(
        self, to: Reference | None, secrets: Mapping[str, str], trust: bool, timeout: float | None
    ) -> Report:
        before = await asyncio.to_thread(self._head)
        if not self._driver.started:
            self._line.at = before
        try:
            made = await asyncio.to_thread(self._roll_head_back, to, trust)
            report = await self._apply(self.store, made, secrets, trust, timeout)
        except BaseException:
            if await asyncio.to_thread(self._head) != before:
                await asyncio.to_thread(self.store.restore, before, trust=True)
            raise
        self._line.at = made
        return report

    def _roll_head_back(self, to: Reference | None, trust: bool) -> Checkpoint:
        store = self.store
        if to is None:
            target = self._line.rollback_target(store)
        else:
            target = store.resolve(to if isinstance(to, str) else to.id)
        self._line.take_head(store)
        return store.rollback(self.subject, target, trust=trust)

    async def _apply(
        self,
        store: Store,
        target: Checkpoint,
        secrets: Mapping[str, str],
        trust: bool,
        timeout: float | None = WORK_TIMEOUT,
    ) -> Report:
        parts = await asyncio.to_thread(checkpoints.read, store, target, trust)
        restored = await self._load(target.id, parts, secrets, timeout)
        self.report = report_of(restored.items)
        return self.report

    def _given(
        self, secrets: Mapping[str, str] | None, timeout: float | None = None
    ) -> dict[str, str]:
        """All secrets that a restore may put in again. Raises BadInput."""
        checks.seconds("timeout", timeout)
        environ = {
            key.removeprefix(_SECRET): value
            for key, value in os.environ.items()
            if key.startswith(_SECRET)
        }
        given = checks.texts("secrets", secrets)
        return {**checks.texts("environ", environ), **self._secrets, **given}

    async def _load(
        self,
        checkpoint_id: str,
        parts: Mapping[str, bytes],
        secrets: Mapping[str, str],
        timeout: float | None,
    ) -> RestoredMessage:
        restored = None
        if self.alive:
            # None: it was dying already and nobody had noticed, so a new one takes its place.
            restored = await self._driver.restore(checkpoint_id, parts, secrets, timeout)
        if restored is None:
            self._driver.check_open()
            await self._driver.start()
            restored = await self._driver.restore(checkpoint_id, parts, secrets, timeout)
        if restored is None:
            from holdfast.session.errors import WorkerDied

            self._driver.check_open()
            raise WorkerDied(
                f"{self.subject}: the worker ended while it restored ({self._driver.state})",
                hint="restore an earlier checkpoint",
            )
        return restored

    def _check_free(self) -> None:
        hint = f"Session.resume({self.name!r}) goes on with it; fresh=True begins a new line"
        checkpoints.check_free(self.store, self.subject, hint)

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


def _subject(name: str) -> Subject:
    """The subject of a session's name, with or without its kind. Raises BadInput."""
    name = name.removeprefix("session/")
    kind, slash, rest = name.partition("/")
    if slash and kind in KINDS:
        raise BadInput(
            f"{name!r} is no name of a session: {kind}/ is the kind of another subject",
            hint=f"a name without a kind, such as {rest!r}",
        )
    return Subject("session", name)
