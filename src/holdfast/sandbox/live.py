"""A live sandbox: one body, one identity, at most one client, and what runs in it."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from holdfast.model.errors import Busy, CaptureFailed, Conflict, Denied, HoldfastError, NotFound
from holdfast.protocol.sandbox_flow import Fact
from holdfast.protocol.sandbox_messages import (
    CreateRequest,
    ExecuteRequest,
)
from holdfast.sandbox import interpreter, languages, upper
from holdfast.sandbox.admission import OWNER, Tenant
from holdfast.sandbox.body import Body
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.egress import PORT as PROXY_PORT
from holdfast.sandbox.egress import Egress
from holdfast.sandbox.execution import Execution
from holdfast.sandbox.files import Files
from holdfast.sandbox.line import Running
from holdfast.sandbox.switchboard import Channel, Switchboard
from holdfast.sandbox.whole import in_thread, whole
from holdfast.store.leases import Lease

log = logging.getLogger("holdfast.sandbox")
MOST_BESIDE = 32  # processes of a client at once
DELIVERY_SECONDS = 2.0
# For a session inside to be written down: when somebody asked for that, and when the sandbox is put
# away whether its session can be or not.
SESSION_SECONDS, LAST_SESSION_SECONDS = 120.0, 30.0


class Client(Protocol):
    """Who is attached. Told about what others do to its sandbox."""

    async def tell_of_others(self, fact: Fact, error: HoldfastError | None = None) -> None:
        """Say a fact that somebody else brought about, when its turn has come."""
        ...

    async def went_back(self, sandbox: LiveSandbox, checkpoint: str) -> None:
        """Its sandbox is what it was at a checkpoint: what ran since then is no more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """One moment of a sandbox, on the disk of this machine."""

    files: Path
    image: Path
    epoch: int
    executions: list[dict[str, object]]
    running: list[Running]

    def discard(self) -> None:
        _discard(self.files, self.image)


def discard_image(image: Path) -> None:
    shutil.rmtree(image, ignore_errors=True)


class LiveSandbox:
    """A sandbox that this server runs."""

    def __init__(
        self,
        identity: str,
        token: str,
        request: CreateRequest,
        body: Body,
        limits: Limits,
        epoch: int = 0,
        tenant: Tenant = OWNER,
    ) -> None:
        self.identity = identity
        self.tenant = tenant  # in whose quota it counts
        self.holder = tenant.name  # whose it is, wherever it comes back; empty: the owner's
        self.token = token  # its hash
        self.request = request
        self.body = body
        self.limits = limits
        self.epoch = epoch
        self.foreground: Execution | None = None
        self.beside: dict[str, Execution] = {}
        self.client: Client | None = None
        self.work = asyncio.Lock()  # freezing, going back and ending, one at a time
        self.lease: Lease | None = None
        self.ended = False
        self.session = False  # whether code was run in a session inside
        self.egress: Egress | None = None  # how its programs reach what they may
        self.switch: Switchboard | None = None
        self.away = False  # frozen: what ran goes on elsewhere, it has not ended
        # Nobody is attached who could speak: that something is executed counts as activity.
        self.unattended = False
        self.touched = time.monotonic()

    def become(self, other: LiveSandbox) -> Body:
        """Take over what another has, and keep the identity, the lease and the client."""
        old, self.body = self.body, other.body
        self.epoch, self.session = other.epoch, other.session
        self.foreground, self.beside = other.foreground, other.beside
        self.switch = None  # ends with the body that it ran in
        return old

    async def give_up(self) -> None:
        """One that nobody knows yet, and nobody will: end it and clear it away."""
        self.ended = True
        self.stop_timers()
        await self.body.give_up()

    def stop_timers(self) -> None:
        for execution in self.executions:
            if execution.timer is not None:
                execution.timer.cancel()

    def touch(self) -> None:
        """A frame went in or out: it is not idle."""
        self.touched = time.monotonic()

    @property
    def executions(self) -> Iterator[Execution]:
        if self.foreground is not None:
            yield self.foreground
        yield from self.beside.values()

    @property
    def executing(self) -> bool:
        return any(each.exit is None for each in self.executions)

    # -- running

    async def execute(self, request: ExecuteRequest) -> Execution:
        """Begin an execution. Raises Conflict while the foreground is taken, and Unsupported for a
        terminal where the engine has none."""
        if request.pty:
            engine = self.body.engine
            engine.capabilities.need("pty", engine.name)
        if request.process_id is None:
            if self.foreground is not None and self.foreground.exit is None:
                raise Conflict(
                    "an execution is running", hint="wait for it, kill it, or give a process_id"
                )
        elif request.process_id in self.beside:
            raise Conflict(f"there is a process {request.process_id!r} already")
        elif len(self.beside) >= MOST_BESIDE:
            raise Busy(f"more than {MOST_BESIDE} processes at once", hint="wait for one of them")
        planned = languages.plan(
            request,
            self.body.build.root,
            self.limits,
            secrets.token_hex(8),
            proxy=None if self.egress is None else f"http://127.0.0.1:{PROXY_PORT}",
            offline=self.request.offline,
        )
        if planned.script is not None:
            await self.files.write(*planned.script)
        process = await self.body.line.start(planned.start)
        self.session = self.session or request.session
        execution = Execution(process, request.encoding, request.process_id, request.session)
        self.adopt(execution)
        return execution

    def adopt(self, execution: Execution) -> None:
        """An execution that has begun, here or before a restore; its time counts from now."""
        if execution.process_id is None:
            self.foreground = execution
        else:
            self.beside[execution.process_id] = execution
        self._limit(execution)

    def find(self, process_id: str | None) -> Execution:
        """The execution that is meant. Raises NotFound."""
        found = self.foreground if process_id is None else self.beside.get(process_id)
        if found is None or found.exit is not None:
            raise NotFound("nothing is running" if process_id is None else f"no {process_id!r}")
        return found

    async def kill_all(self) -> None:
        """End every execution, and wait until that is so."""
        for execution in list(self.executions):
            if execution.exit is None:
                execution.process.kill()
                execution.process.unfollow()  # a client that does not read must not keep it
                await execution.process.wait()

    async def delivered(self) -> None:
        """The foreground has ended; wait until its client knows, as far as it listens."""
        try:
            async with asyncio.timeout(DELIVERY_SECONDS):
                while self.client is not None and self.foreground is not None:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            return  # it is slow, and is not waited for

    def forget(self, execution: Execution) -> None:
        """It has ended and its client knows everything about it."""
        if execution.timer is not None:
            execution.timer.cancel()
        if execution is self.foreground:
            self.foreground = None
        elif execution.process_id is not None:
            self.beside.pop(execution.process_id, None)

    def _limit(self, execution: Execution) -> None:
        def over() -> None:
            if execution.exit is None:
                execution.reason = f"it ran for more than {self.limits.seconds:g} s"
                execution.process.kill()

        loop = asyncio.get_running_loop()
        execution.timer = loop.call_later(self.limits.seconds, over)

    # -- connections

    async def connect(self, port: int) -> Channel:
        """A connection to a published port. Raises Denied, or NotFound when nobody listens."""
        if port not in self.request.ports:
            raise Denied(
                f"port {port} is not published", hint="create the sandbox with ports=[...]"
            )
        async with self.work:
            if self.ended:
                raise NotFound("the sandbox has ended")
            board = await self.plug_in()
        return await board.connect(port)

    async def plug_in(self) -> Switchboard:
        """Have the switch run inside. Nobody freezes the sandbox meanwhile."""
        if self.switch is None or not self.switch.alive:
            board = Switchboard(self.egress.answer if self.egress else None)
            await board.begin(self.body.line, PROXY_PORT if self.egress else 0)
            self.switch = board
        return self.switch

    async def go_out(self) -> None:
        """Let programs reach what they may. A program of theirs in the way is their own affair."""
        if self.egress is None:
            return
        try:
            await self.plug_in()
        except (HoldfastError, OSError) as error:
            log.warning("sandbox %s has no egress: %s", self.identity, error)

    async def unplug(self) -> None:
        """End every connection: they do not survive a freeze."""
        board, self.switch = self.switch, None
        if board is not None:
            await board.close()

    @property
    def files(self) -> Files:
        return Files(self.body.line)

    # -- freezing

    async def keep_session(self, *, force: bool = False) -> None:
        """Let the session inside write itself down, so that it comes back where memory does not.
        Raises CaptureFailed. One that is busy stays as it was written last; with `force`, so does
        every one that cannot be written."""
        busy = any(each.session and each.exit is None for each in self.executions)
        if not self.session or busy:
            return
        order = languages.session_checkpoint(self.body.build.root, self.limits)
        process = await self.body.line.start(order)
        code = None
        try:
            async with asyncio.timeout(LAST_SESSION_SECONDS if force else SESSION_SECONDS):
                code = (await process.wait()).code
            said = b"".join(piece.data for piece in process.replay.after(0))
            why = said.decode("utf-8", "replace").strip()[-300:]
        except TimeoutError:
            why = "it does not answer in time"
        finally:
            if process.exit is None:
                process.abandon()
        if code == 0:
            return
        if not force and not (code == interpreter.BUSY and self.body.exact):
            raise CaptureFailed(f"the session inside could not be frozen: {why}")
        log.warning(
            "the session of sandbox %s stays as it was written last: %s", self.identity, why
        )

    async def freeze(
        self, writes: Callable[[Path], None] | None = None, *, memory: bool = True
    ) -> Frozen:
        """Stop everything inside at one moment, with all it takes to go on from there on disk;
        `writes` is called when the engine begins to write an image. Without `memory` there is no
        image: files are all that is kept. Raises CaptureFailed, or is cancelled; then it goes on as
        it was."""
        return await whole(self._freeze(writes, memory), undo=self._unfreeze)

    async def _freeze(self, writes: Callable[[Path], None] | None, memory: bool) -> Frozen:
        self.epoch += 1
        build, box = self.body.build, self.body.box
        frozen_image = build.folder / f"image-{self.epoch}"
        files = build.folder / f"files-{self.epoch}.tar"
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.go_out)
            await self.unplug()
            await self.body.line.quiesce(self.epoch)
            undo.push_async_callback(self._agent_goes_on)
            undo.push_async_callback(in_thread, _discard, files, frozen_image)
            if memory:
                if writes is not None:
                    writes(frozen_image)
                await box.freeze(frozen_image)
            else:
                await box.pause()
            undo.push_async_callback(self._box_goes_on)
            frozen = Frozen(
                files=files,
                image=frozen_image,
                epoch=self.epoch,
                executions=[each.kept() for each in self.executions if each.exit is None],
                running=self.body.line.running,
            )
            try:
                await in_thread(_pack, build.volume.upper, files, at_rest=self.body.exact)
            except (HoldfastError, OSError) as error:
                raise CaptureFailed(f"the sandbox's files could not be kept: {error}") from error
            undo.pop_all()
            return frozen

    async def _unfreeze(self, frozen: Frozen) -> None:
        await self.thaw()
        await in_thread(frozen.discard)

    async def thaw(self) -> None:
        """Go on after `freeze`. Where that cannot be, the sandbox has broken, and whoever looks
        after it hears of that: what was frozen is good all the same."""
        await whole(self._thaw())

    async def _thaw(self) -> None:
        await self._box_goes_on()
        await self._agent_goes_on()
        await self.go_out()

    async def _box_goes_on(self) -> None:
        for wait in (0.1, 1.0, None):
            try:
                await self.body.box.thaw()
                return
            except (HoldfastError, OSError) as error:
                log.warning("sandbox %s does not go on: %s", self.identity, error)
            if wait is None or not self.body.alive:
                break
            await asyncio.sleep(wait)
        self.body.line.close("it was frozen, and could not go on")

    async def _agent_goes_on(self) -> None:
        try:
            await self.body.line.resume(self.epoch)
        except (HoldfastError, OSError) as error:
            # It goes on when it answers; one that has ended is told of by the end of its line.
            log.warning("sandbox %s: %s", self.identity, error)


def _discard(files: Path, image: Path) -> None:
    files.unlink(missing_ok=True)
    discard_image(image)


def _pack(folder: Path, files: Path, *, at_rest: bool) -> None:
    with open(files, "xb") as file:
        upper.write(file, upper.pack(folder, at_rest=at_rest))
