"""All sandboxes of one server: made, found, frozen, brought back, ended."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import (
    BadInput,
    CaptureFailed,
    Conflict,
    Denied,
    HoldfastError,
    NotFound,
    Unsupported,
)
from holdfast.protocol.sandbox_flow import Fact
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.protocol.sandbox_messages import Limits as Asked
from holdfast.sandbox import keeping, roots
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.contract import Engine, Limits
from holdfast.sandbox.execution import Execution
from holdfast.sandbox.keeping import Kept
from holdfast.sandbox.live import Client, Frozen, LiveSandbox
from holdfast.sandbox.pool import Pool
from holdfast.sandbox.roots import Root
from holdfast.store import Store

log = logging.getLogger("holdfast.sandbox")
KILLED = "killed"  # a tag: the sandbox was ended on purpose, its checkpoints stay
_ID = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

Tell = Callable[[Fact], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a server keeps sandboxes."""

    most: int = 64
    warm: int = 1
    checkpoints: bool = True
    limits: Limits = field(default_factory=Limits)
    images: tuple[tuple[str, Path], ...] = ()


@dataclass(frozen=True, slots=True)
class Captured:
    """A checkpoint and how long the sandbox stood still for it."""

    checkpoint: Checkpoint
    pause_ms: float


class Fleet:
    """The sandboxes that this server owns."""

    def __init__(self, store: Store, engine: Engine, folder: Path, settings: Settings) -> None:
        self.store = store
        self.engine = engine
        self.settings = settings
        self.folder = folder
        self.live: dict[str, LiveSandbox] = {}
        self._workshop = Workshop(engine, folder / "boxes")
        self._root: Root = roots.default(folder / "root")
        self._pool = Pool(self._plain, settings.warm)
        self._restoring: set[str] = set()
        self._making = 0
        self._background: set[asyncio.Task[None]] = set()
        self._stopping = False

    def begin(self) -> None:
        """Stand ready."""
        self._pool.fill()
        self._later(self._watch_idle())

    # -- making

    async def create(self, request: CreateRequest) -> tuple[LiveSandbox, str]:
        """A new sandbox and its token. Raises HoldfastError."""
        self._check(request)
        self._making += 1
        try:
            body = await self._new_body(request)
        finally:
            self._making -= 1
        token = secrets.token_urlsafe(32)
        sandbox = LiveSandbox(
            secrets.token_hex(16), keeping.token_hash(token), request, body, body.build.limits
        )
        self._enlist(sandbox)
        return sandbox, token

    def _check(self, request: CreateRequest) -> None:
        """Everything that can be said without starting anything."""
        self._check_room(1)
        if request.enable_checkpoint and not self.settings.checkpoints:
            raise Unsupported("this server takes no checkpoints")
        if request.enable_sandbox_handoff:
            raise Unsupported(
                "this server cannot hand sandboxes over", hint="leave enable_sandbox_handoff out"
            )
        if request.engine not in (None, "auto", self.engine.name):
            raise Unsupported(
                f"this server has the engine {self.engine.name}, not {request.engine}"
            )
        if request.network:
            self.engine.capabilities.need("network", self.engine.name)
        if request.image not in (None, "default", *(name for name, _ in self.settings.images)):
            raise NotFound(f"this server has no image {request.image!r:.100}")
        if request.filesystem_snapshot_name is not None:
            check_name(request.filesystem_snapshot_name)

    def _check_room(self, more: int) -> None:
        if self._stopping:
            raise Conflict("the server is stopping")
        if len(self.live) + len(self._restoring) + self._making + more > self.settings.most:
            raise Conflict(
                f"there are {self.settings.most} sandboxes already", hint="end one, then try again"
            )

    async def _new_body(self, request: CreateRequest) -> Body:
        plain = (
            request.limits is None
            and request.filesystem_snapshot_name is None
            and not request.network
            and request.image in (None, "default")
        )
        if plain and (ready := self._pool.take()) is not None:
            return ready
        fill = None
        if request.filesystem_snapshot_name is not None:
            subject = keeping.snapshot_subject(request.filesystem_snapshot_name)
            kept = await asyncio.to_thread(keeping.look, self.store, subject)
            if kept.environment.get("root") != self._root_of(request).digest:
                raise Unsupported("the snapshot belongs to another root")
            fill = self._filling(kept)
        limits = limited(self.settings.limits, request.limits)
        root = self._root_of(request)
        return await self._workshop.make(root, limits, network=request.network, fill=fill)

    async def _plain(self) -> Body:
        return await self._workshop.make(self._root, self.settings.limits)

    def _root_of(self, request: CreateRequest) -> Root:
        for name, place in self.settings.images:
            if name == request.image:
                return roots.foreign(name, place, self.folder / "root", f"image:{name}")
        return self._root

    def _filling(self, kept: Kept) -> Callable[[Path], None]:
        return lambda upper: keeping.fetch_files(self.store, kept.checkpoint, upper)

    def _enlist(self, sandbox: LiveSandbox) -> None:
        self.live[sandbox.identity] = sandbox
        self._watch(sandbox)

    def _watch(self, sandbox: LiveSandbox) -> None:
        body = sandbox.body
        body.line.gone.add_done_callback(lambda why: self._lost(sandbox, body, why.result()))

    def _lost(self, sandbox: LiveSandbox, body: Body, why: str) -> None:
        """An agent went away. When nobody asked for that, the sandbox broke."""
        if sandbox.ended or sandbox.body is not body:
            return
        log.warning("sandbox %s broke: %s", sandbox.identity, why)
        self._later(self._broken(sandbox, why))

    async def _broken(self, sandbox: LiveSandbox, why: str) -> None:
        if sandbox.client is not None:
            error = HoldfastError(
                f"the sandbox broke: {why}", hint="it may have used more memory than it is allowed"
            )
            await sandbox.client.tell(Fact.FAULT, error=error)
        await self._retire(sandbox)

    # -- finding

    async def find(self, identity: str, token: str) -> LiveSandbox | Kept:
        """A sandbox that lives here, or one that could be restored. The token is checked before
        anything else is. Raises NotFound, Denied, or Conflict while it is in use."""
        if not _ID.fullmatch(identity):
            raise NotFound(f"there is no sandbox {identity!r:.50}")
        live = self.live.get(identity)
        if live is not None:
            if not keeping.fits(token, live.token):
                raise Denied("the sandbox token is wrong")
            if live.client is not None:
                raise Conflict("another client is attached to this sandbox")
            return live
        kept = await asyncio.to_thread(self._kept, identity)
        if not keeping.fits(token, kept.token):
            raise Denied("the sandbox token is wrong")
        if identity in self._restoring:
            raise Conflict("another client is restoring this sandbox")
        return kept

    def _kept(self, identity: str) -> Kept:
        subject = keeping.subject_of(identity)
        head = self.store.head(subject)
        if head is None or KILLED in head.tags:
            raise NotFound(f"there is no sandbox {identity}")
        return keeping.read(self.store, head)

    def check(self, kept: Kept) -> None:
        """Whether it can be restored here, as far as that can be said. Raises HoldfastError."""
        self._check_room(1)
        kept.check(self.engine, self._root_of(kept.request).digest)

    async def restore(self, identity: str, kept: Kept) -> LiveSandbox:
        """Bring a sandbox back under its own id. Raises HoldfastError; the checkpoint stays."""
        if identity in self._restoring or identity in self.live:
            raise Conflict("another client is restoring this sandbox")
        self._restoring.add(identity)
        try:
            sandbox = await self._revive(identity, kept.token, kept)
            self._enlist(sandbox)
            return sandbox
        finally:
            self._restoring.discard(identity)

    async def _revive(self, identity: str, token: str, kept: Kept) -> LiveSandbox:
        image = self.folder / "images" / secrets.token_hex(8)
        try:
            if kept.memory:
                await asyncio.to_thread(keeping.fetch_memory, self.store, kept, image)
            return await self._thawed(identity, token, kept, self._filling(kept), image)
        finally:
            await asyncio.to_thread(_discard, image)

    async def _thawed(
        self, identity: str, token: str, kept: Kept, fill: Callable[[Path], None], image: Path
    ) -> LiveSandbox:
        request = kept.request
        limits = limited(self.settings.limits, request.limits)
        root = self._root_of(request)
        exact = self.engine.capabilities.exact_checkpoint
        body = await self._workshop.make(
            root, limits, network=request.network, fill=fill, image=image if exact else None
        )
        sandbox = LiveSandbox(identity, token, request, body, limits, kept.epoch)
        try:
            if exact:
                for each in kept.executions:
                    execution = Execution.revived(each, body.line)
                    if execution.process_id is None:
                        sandbox.foreground = execution
                    else:
                        sandbox.beside[execution.process_id] = execution
                await body.line.resume(kept.epoch, secrets.token_hex(16))
        except BaseException:
            await body.end()
            self._later(body.clear())
            raise
        return sandbox

    # -- freezing

    async def checkpoint(
        self, sandbox: LiveSandbox, *, reason: str, during_execution: bool = False
    ) -> Captured:
        """A checkpoint of a sandbox that goes on. Raises CaptureFailed or Unsupported; then it
        goes on as it was, too."""
        async with sandbox.work:
            self._check_freezing(sandbox, during_execution)
            frozen, pause = await self._moment(sandbox)
            try:
                return Captured(await self._save(sandbox, frozen, reason), pause)
            finally:
                await asyncio.to_thread(frozen.discard)

    async def put_away(
        self,
        sandbox: LiveSandbox,
        tell: Tell,
        *,
        reason: str,
        during_execution: bool = False,
        force: bool = False,
    ) -> Captured:
        """A checkpoint of a sandbox that ends with it. Nothing of it is given up before the
        checkpoint is durable. With `force`, what runs and cannot be frozen is killed."""
        async with sandbox.work:
            if force and not self.engine.capabilities.during_execution:
                await sandbox.kill_all()
            self._check_freezing(sandbox, during_execution or force)
            began = time.perf_counter()
            frozen = await sandbox.freeze()
            try:
                checkpoint = await self._save(sandbox, frozen, reason)
            except BaseException:
                await sandbox.thaw()
                raise
            finally:
                await asyncio.to_thread(frozen.discard)
            pause = (time.perf_counter() - began) * 1000
            await tell(Fact.DELETE_BEGUN)
            await self._retire(sandbox)
            await tell(Fact.DELETED)
            return Captured(checkpoint, pause)

    def _check_freezing(self, sandbox: LiveSandbox, during_execution: bool) -> None:
        if sandbox.ended:
            raise CaptureFailed("the sandbox has ended")
        if sandbox.executing and not during_execution:
            raise Conflict(
                "an execution is running", hint="wait for it, or ask with during_execution"
            )
        if sandbox.executing:
            self.engine.capabilities.need("during_execution", self.engine.name)

    async def _moment(self, sandbox: LiveSandbox) -> tuple[Frozen, float]:
        began = time.perf_counter()
        frozen = await sandbox.freeze()
        await sandbox.thaw()
        return frozen, (time.perf_counter() - began) * 1000

    async def _save(self, sandbox: LiveSandbox, frozen: Frozen, reason: str) -> Checkpoint:
        config = keeping.config_of(sandbox.request, sandbox.token, frozen.epoch, frozen.executions)
        root = sandbox.body.build.root
        try:
            return await asyncio.to_thread(
                keeping.save,
                self.store,
                keeping.subject_of(sandbox.identity),
                reason=reason,
                config=config,
                environment={**self.engine.environment(), "root": root.digest},
                files=frozen.files,
                image=frozen.image,
            )
        except HoldfastError as error:
            raise CaptureFailed(f"the checkpoint could not be stored: {error}") from error

    async def snapshot(self, sandbox: LiveSandbox, name: str) -> Checkpoint:
        """Keep the files of a sandbox under a name. Raises HoldfastError."""
        check_name(name)
        self.engine.capabilities.need("snapshot", self.engine.name)
        async with sandbox.work:
            frozen, _ = await self._moment(sandbox)
            try:
                return await asyncio.to_thread(
                    keeping.save,
                    self.store,
                    keeping.snapshot_subject(name),
                    reason=f"files of {sandbox.identity}",
                    config=keeping.config_of(CreateRequest(), "", 0, []),
                    environment={"root": sandbox.body.build.root.digest},
                    files=frozen.files,
                    image=None,
                )
            finally:
                await asyncio.to_thread(frozen.discard)

    async def fork(self, sandbox: LiveSandbox, count: int) -> list[tuple[LiveSandbox, str]]:
        """Live copies, each with an id and a token of its own; all of them or none."""
        self.engine.capabilities.need("fork", self.engine.name)
        self._check_room(count)
        async with sandbox.work:
            self._check_freezing(sandbox, self.engine.capabilities.during_execution)
            frozen, _ = await self._moment(sandbox)
        try:
            origin = await self._save(sandbox, frozen, f"fork into {count}")
            kept = await asyncio.to_thread(keeping.read, self.store, origin)
            made: list[tuple[LiveSandbox, str]] = []
            try:
                while len(made) < count:
                    made.append(await self._forked(kept, origin, frozen))
            except BaseException:
                for copy, _ in made:
                    await self._retire(copy)
                raise
            for copy, _ in made:
                self._enlist(copy)
            return made
        finally:
            await asyncio.to_thread(frozen.discard)

    async def _forked(
        self, kept: Kept, origin: Checkpoint, frozen: Frozen
    ) -> tuple[LiveSandbox, str]:
        identity, token = secrets.token_hex(16), secrets.token_urlsafe(32)
        hashed = keeping.token_hash(token)
        # The copy runs from the local image; the store only notes where it came from.
        fill = self._filling(kept)
        copy = await self._thawed(identity, hashed, kept, fill, frozen.image)
        await asyncio.to_thread(keeping.fork, self.store, origin, identity, hashed)
        return copy, token

    async def rollback(self, sandbox: LiveSandbox, to: str | None = None) -> Checkpoint:
        """Go back to a checkpoint of this sandbox, keeping its id, its token and its client."""
        subject = keeping.subject_of(sandbox.identity)
        async with sandbox.work:
            target = await asyncio.to_thread(self.store.rollback, subject, to)
            try:
                kept = await asyncio.to_thread(keeping.read, self.store, target)
                kept.check(self.engine, self._root_of(sandbox.request).digest)
                back = await self._revive(sandbox.identity, sandbox.token, kept)
            except BaseException:
                await asyncio.to_thread(self.store.undo, subject)
                raise
            old, sandbox.body = sandbox.body, back.body
            sandbox.epoch = back.epoch
            sandbox.foreground, sandbox.beside = back.foreground, back.beside
            self._watch(sandbox)
            await old.end()
            self._later(old.clear())
            return target

    # -- ending

    async def kill(self, sandbox: LiveSandbox, tell: Tell) -> None:
        """End a sandbox for good; its checkpoints stay in the store, but nobody attaches."""
        async with sandbox.work:
            await tell(Fact.DELETE_BEGUN)
            await asyncio.to_thread(self._mark_killed, sandbox.identity)
            await self._retire(sandbox)
            await tell(Fact.DELETED)

    def _mark_killed(self, identity: str) -> None:
        head = self.store.head(keeping.subject_of(identity))
        if head is not None:
            self.store.tag(head, KILLED)

    async def _retire(self, sandbox: LiveSandbox) -> None:
        sandbox.ended = True
        self.live.pop(sandbox.identity, None)
        for execution in list(sandbox.executions):
            if execution.timer is not None:
                execution.timer.cancel()
        await sandbox.body.end()
        self._later(sandbox.body.clear())

    async def _watch_idle(self) -> None:
        while not self._stopping:
            await asyncio.sleep(0.25)
            now = time.monotonic()
            for sandbox in list(self.live.values()):
                if (
                    now - sandbox.touched > sandbox.request.idle_timeout
                    and not sandbox.work.locked()
                ):
                    sandbox.touch()  # one at a time; a failed checkpoint is tried again later
                    self._later(self._idle(sandbox))

    async def _idle(self, sandbox: LiveSandbox) -> None:
        client = sandbox.client
        keep = sandbox.request.enable_idle_timeout_auto_checkpoint
        log.info("sandbox %s is idle", sandbox.identity)
        try:
            await _tell(client, Fact.IDLE)
            if keep:
                await _tell(client, Fact.CHECKPOINT_BEGUN)
                await self.put_away(
                    sandbox, lambda fact: _tell(client, fact), reason="idle", force=True
                )
                await _tell(client, Fact.CHECKPOINTED)
                return
            async with sandbox.work:
                await _tell(client, Fact.DELETE_BEGUN)
                await self._retire(sandbox)
                await _tell(client, Fact.DELETED)
            await _tell(client, Fact.ENDED)
        except HoldfastError as error:
            log.warning("sandbox %s could not be put away: %s", sandbox.identity, error)
            await _tell(client, Fact.CHECKPOINT_FAILED, error)

    async def stop(self) -> list[str]:
        """End everything in good order: what may be checkpointed is. Gives what could not be."""
        self._stopping = True
        troubles: list[str] = []
        for body in await self._pool.close():
            await body.end()
            self._later(body.clear())

        async def put_down(sandbox: LiveSandbox) -> None:
            try:
                if sandbox.request.enable_checkpoint and not sandbox.ended:
                    await self.put_away(sandbox, _silence, reason="the server stopped", force=True)
            except HoldfastError as error:
                troubles.append(f"sandbox {sandbox.identity}: {error}")
            if not sandbox.ended:
                await self._retire(sandbox)

        await asyncio.gather(*(put_down(each) for each in list(self.live.values())))
        clearing = [task for task in self._background if task.get_name() != "idle watch"]
        if clearing:
            await asyncio.wait(clearing, timeout=20)
        for task in self._background:
            task.cancel()
        return troubles

    def _later(self, work: Awaitable[None]) -> None:
        async def do() -> None:
            try:
                await work
            except (HoldfastError, OSError):
                log.exception("clearing up after a sandbox failed")

        name = "idle watch" if getattr(work, "__name__", "") == "_watch_idle" else "clearing"
        task = asyncio.create_task(do(), name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def check_name(name: str) -> None:
    """Names that become part of a subject. Raises BadInput."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"bad name: {name!r:.100}", hint="letters, digits and any of . _ -, at most 100"
        )


def limited(ours: Limits, asked: Asked | None) -> Limits:
    """What was asked for, never more than the server gives."""
    if asked is None:
        return ours
    return replace(
        ours,
        memory_bytes=min(ours.memory_bytes, asked.memory_bytes or ours.memory_bytes),
        cpus=min(ours.cpus, asked.cpus or ours.cpus),
        processes=min(ours.processes, asked.processes or ours.processes),
        disk_bytes=min(ours.disk_bytes, asked.disk_bytes or ours.disk_bytes),
        seconds=min(ours.seconds, asked.seconds or ours.seconds),
    )


async def _tell(client: Client | None, fact: Fact, error: HoldfastError | None = None) -> None:
    if client is not None:
        await client.tell(fact, error=error)


async def _silence(fact: Fact) -> None:
    """Nobody is there to be told."""


def _discard(image: Path) -> None:
    if image.is_dir():
        for each in image.iterdir():
            each.unlink()
        image.rmdir()
