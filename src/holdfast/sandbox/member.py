"""A live sandbox as a member of a bundle: frozen whole, kept aside, brought back in step.

While it is bound nothing of it is given up: what it becomes is made beside it, in a body of its
own, and takes its place only when all heads have moved. Until then the way back is to let it go on.
"""

from __future__ import annotations

import asyncio

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import CaptureFailed, Unsupported, UsageError
from holdfast.model.subject import Subject
from holdfast.protocol.sandbox_messages import ExecuteRequest
from holdfast.sandbox import keeping
from holdfast.sandbox.body import Body
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.live import Frozen, LiveSandbox
from holdfast.sandbox.whole import in_thread, whole
from holdfast.store import Store
from holdfast.store.leases import Lease

RUN_SECONDS = 120.0


class SandboxMember:
    """Binds a sandbox of a fleet. Pausing freezes it, with this moment of it on the disk."""

    rank = -1

    def __init__(self, fleet: Fleet, sandbox: LiveSandbox) -> None:
        """Raises Unsupported for one without checkpoints."""
        if not sandbox.request.enable_checkpoint:
            raise Unsupported(
                f"checkpoints are not enabled for sandbox {sandbox.identity}",
                hint="create it with enable_checkpoint",
            )
        self._fleet = fleet
        self._sandbox = sandbox
        self._frozen: Frozen | None = None
        self._captured: Checkpoint | None = None
        self._next: LiveSandbox | None = None  # what it becomes when all heads have moved
        self._old: Body | None = None
        self._at: Checkpoint | None = None

    @property
    def subject(self) -> Subject:
        return keeping.subject_of(self._sandbox.identity)

    @property
    def store(self) -> Store:
        return self._fleet.store

    @property
    def lease(self) -> Lease | None:
        return self._sandbox.lease

    async def pause(self) -> None:
        """Raises HoldfastError, or is cancelled; then it goes on as it was."""
        sandbox, freezer = self._sandbox, self._fleet.freezer
        await sandbox.work.acquire()
        try:
            await freezer.ready(sandbox, freezer.engine.capabilities.during_execution)
            self._frozen = await sandbox.freeze()
        except BaseException:
            sandbox.work.release()
            raise

    async def capture(self, reason: str, stage: str | None) -> Checkpoint:
        if self._frozen is None:
            raise UsageError("it is captured while it is paused")
        self._captured = await self._fleet.freezer.save(
            self._sandbox, self._frozen, reason, stage=stage, aside=True
        )
        return self._captured

    async def enter(self, checkpoint: Checkpoint, trust: bool) -> None:
        await self._drop()
        if self._captured is not None and checkpoint.id == self._captured.id:
            return  # it is just that, and waits to go on
        self._next = await self._fleet.revived(self._sandbox, checkpoint)

    async def run(self, code: str) -> None:
        """Run Python code in what it becomes. Raises CaptureFailed with what it printed."""
        inside = self._next
        if inside is None:
            raise UsageError("code is run inside while it is brought back")
        asked = ExecuteRequest(language="python", code=code, stdin=False, process_id="on-restore")
        execution = await inside.execute(asked)
        try:
            async with asyncio.timeout(RUN_SECONDS):
                how = await execution.process.wait()
        except TimeoutError:
            execution.process.kill()
            raise CaptureFailed(f"{self.subject}: the code took too long") from None
        finally:
            inside.forget(execution)
        if how.code != 0:
            pieces = execution.process.replay.after(0)
            said = b"".join(each.data for each in pieces).decode("utf-8", "replace")
            raise CaptureFailed(f"{self.subject}: the code failed: {said.strip()[-500:]}")

    async def arrive(self, checkpoint: Checkpoint) -> None:
        if self._next is not None:
            self._old = self._fleet.replace(self._sandbox, self._next)
            self._next, self._at = None, checkpoint

    async def resume(self) -> None:
        """Go on, as it was or as what it became. Not left halfway, whoever is cancelled."""
        await whole(self._resume())

    async def _resume(self) -> None:
        try:
            await self._drop()
            if self._old is None:
                await self._sandbox.thaw()
            else:
                await self._went_back(self._old)
            if self._frozen is not None:
                await in_thread(self._frozen.discard)
        finally:
            self._frozen = self._captured = self._old = self._at = None
            self._sandbox.touch()
            self._sandbox.work.release()

    async def _went_back(self, old: Body) -> None:
        """Its client is told before what it knew ends."""
        client = self._sandbox.client
        if client is not None and self._at is not None:
            await client.went_back(self._sandbox, self._at.id)
        await self._fleet.give_up(old)
        await self._sandbox.go_out()

    async def _drop(self) -> None:
        """What it would have become is not needed."""
        unused, self._next = self._next, None
        if unused is not None:
            unused.stop_timers()
            await self._fleet.give_up(unused.body)
