"""Freezing live sandboxes: one moment of each, kept in the store while it goes on."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import CaptureFailed, Conflict, HoldfastError, Unsupported
from holdfast.model.tracing import span
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.sandbox import keeping
from holdfast.sandbox.chores import Chores
from holdfast.sandbox.coming import Coming, Moment
from holdfast.sandbox.contract import Engine
from holdfast.sandbox.live import Frozen, LiveSandbox
from holdfast.sandbox.whole import in_thread, task_of, whole
from holdfast.store import Store


@dataclass(frozen=True, slots=True)
class Captured:
    """A checkpoint and how long the sandbox stood still for it."""

    checkpoint: Checkpoint
    pause_ms: float


class StillExecuting(Unsupported):
    """What runs would have to be frozen, too, which the engine cannot; without it, it can."""


class Freezer:
    """Takes checkpoints for one store, of sandboxes of one engine."""

    def __init__(self, store: Store, engine: Engine, chores: Chores) -> None:
        self.store = store
        self.engine = engine
        self._chores = chores

    async def checkpoint(
        self, sandbox: LiveSandbox, *, reason: str, during_execution: bool = False
    ) -> Captured:
        """A checkpoint of a sandbox that goes on. Raises CaptureFailed or Unsupported; then it
        goes on as it was, too."""
        with span("sandbox.freeze", sandbox=sandbox.identity):
            return await whole(self._checkpoint(sandbox, reason, during_execution))

    async def _checkpoint(
        self, sandbox: LiveSandbox, reason: str, during_execution: bool
    ) -> Captured:
        async with sandbox.work:
            await self.ready(sandbox, during_execution)
            frozen, pause = await self.moment(sandbox)
            try:
                return Captured(await self.save(sandbox, frozen, reason), pause)
            finally:
                self.discard(frozen)

    def discard(self, frozen: Frozen) -> None:
        """Nobody waits for that: a file of gigabytes takes a while to delete."""
        self._chores.begin_later(in_thread(frozen.discard))

    async def ready(
        self, sandbox: LiveSandbox, during_execution: bool, *, force: bool = False
    ) -> None:
        """Let its session write itself down. Raises HoldfastError when it may not be frozen: before
        that, and when something began meanwhile."""
        self.check(sandbox, during_execution)
        await sandbox.keep_session(force=force)
        self.check(sandbox, during_execution)

    def check(self, sandbox: LiveSandbox, during_execution: bool) -> None:
        _check_lives(sandbox)
        if sandbox.executing and not during_execution:
            raise Conflict(
                "an execution is running", hint="wait for it, or ask with during_execution"
            )
        try:
            if sandbox.executing:
                self.engine.capabilities.need("during_execution", self.engine.name)
        except Unsupported as error:
            raise StillExecuting(str(error), hint="wait for it, or kill it; gvisor can") from None

    async def moment(self, sandbox: LiveSandbox) -> tuple[Frozen, float]:
        """One moment of a sandbox that goes on, and for how many milliseconds it did not. Raises
        CaptureFailed, or is cancelled; then it goes on as it was, too."""
        return await whole(self._moment(sandbox), undo=_discard)

    async def _moment(self, sandbox: LiveSandbox) -> tuple[Frozen, float]:
        began = time.perf_counter()
        frozen = await sandbox.freeze()
        await sandbox.thaw()
        return frozen, (time.perf_counter() - began) * 1000

    async def save(
        self,
        sandbox: LiveSandbox,
        frozen: Frozen,
        reason: str,
        *,
        stage: str | None = None,
        aside: bool = False,
    ) -> Checkpoint:
        """Keep a moment in the store; aside, no head comes to it. Raises CaptureFailed."""
        moment = moment_of(sandbox, frozen)
        return await self._save(sandbox, moment, reason, stage=stage, aside=aside)

    async def put_away(self, sandbox: LiveSandbox, reason: str) -> tuple[Frozen, Checkpoint]:
        """A checkpoint of a sandbox that stands still from then on; what its engine writes is
        stored while it does, where that can be. Raises CaptureFailed; then the sandbox goes on as
        it was. Not to be cancelled."""
        coming, saving = Coming(), None

        def store_meanwhile(image: Path) -> None:
            nonlocal saving
            if in_order := sandbox.body.box.in_order:
                coming.begins(image, in_order)
                saving = task_of(self._save(sandbox, coming, reason))

        async def save_nothing() -> None:
            coming.fails()
            if saving is not None:
                await asyncio.wait([saving])
                if not saving.cancelled():
                    saving.exception()  # why there was nothing to save is on its way already

        async with AsyncExitStack() as undo:
            undo.push_async_callback(save_nothing)
            frozen = await sandbox.freeze(store_meanwhile)
            undo.push_async_callback(in_thread, frozen.discard)
            undo.push_async_callback(sandbox.thaw)
            moment = moment_of(sandbox, frozen)
            coming.is_there(moment)
            made = await (saving or self._save(sandbox, moment, reason))
            undo.pop_all()
            return frozen, made

    async def _save(
        self,
        sandbox: LiveSandbox,
        moment: Moment | Coming,
        reason: str,
        *,
        stage: str | None = None,
        aside: bool = False,
    ) -> Checkpoint:
        root = sandbox.body.build.root
        save = partial(
            keeping.save,
            self.store,
            keeping.subject_of(sandbox.identity),
            moment,
            reason=reason,
            environment={**self.engine.environment(), "root": root.digest},
            lease=sandbox.lease,
            stage=stage,
            aside=aside,
        )
        try:
            # What it reads is cleared away afterwards, and threads are not cancelled.
            if isinstance(moment, Coming):
                return await moment.awaited_by(save)
            return await in_thread(save)
        except HoldfastError as error:
            raise CaptureFailed(f"the checkpoint could not be stored: {error}") from error

    async def snapshot(self, sandbox: LiveSandbox, name: str, tenant: str = "") -> Checkpoint:
        """Keep the files of a sandbox under a tenant's name for them. Raises HoldfastError."""
        keeping.check_name(name)
        self.engine.capabilities.need("snapshot", self.engine.name)
        return await whole(self._snapshot(sandbox, keeping.stored_name(name, tenant)))

    async def _snapshot(self, sandbox: LiveSandbox, name: str) -> Checkpoint:
        async with sandbox.work:
            _check_lives(sandbox)
            await sandbox.keep_session()
            # Memory is not wanted: it need not be written.
            frozen = await sandbox.freeze(memory=False)
            await sandbox.thaw()
            try:
                return await in_thread(
                    keeping.save,
                    self.store,
                    keeping.snapshot_subject(name),
                    Moment(keeping.config_of(CreateRequest(), "", 0, []), frozen.files, None),
                    reason=f"files of {sandbox.identity}",
                    environment={"root": sandbox.body.build.root.digest},
                )
            finally:
                self.discard(frozen)


def _check_lives(sandbox: LiveSandbox) -> None:
    if sandbox.ended:
        raise CaptureFailed("the sandbox has ended")


async def _discard(made: tuple[Frozen, float]) -> None:
    await in_thread(made[0].discard)


def moment_of(sandbox: LiveSandbox, frozen: Frozen) -> Moment:
    """What a checkpoint has of a sandbox."""
    config = keeping.config_of(
        sandbox.request,
        sandbox.token,
        frozen.epoch,
        frozen.executions,
        sandbox.session,
        frozen.running,
        sandbox.holder,
    )
    return Moment(config, frozen.files, frozen.image)
