"""All sandboxes of one server: made, found, frozen, brought back, ended."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import (
    Conflict,
    Denied,
    HoldfastError,
    NotFound,
    Unsupported,
)
from holdfast.protocol.sandbox_flow import Fact
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.sandbox import images, keeping, owning, roots
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.contract import Engine, Limits
from holdfast.sandbox.execution import Execution
from holdfast.sandbox.freezing import Captured, Freezer
from holdfast.sandbox.keeping import Kept
from holdfast.sandbox.live import Client, Frozen, LiveSandbox
from holdfast.sandbox.owning import Tell
from holdfast.sandbox.pool import Pool
from holdfast.sandbox.recent import Recent
from holdfast.sandbox.roots import Root
from holdfast.store import Store
from holdfast.store.leases import Lease

log = logging.getLogger("holdfast.sandbox")
KILLED = "killed"  # a tag: the sandbox was ended on purpose, its checkpoints stay
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a server keeps sandboxes."""

    most: int = 64
    warm: int = 1
    checkpoints: bool = True
    limits: Limits = field(default_factory=Limits)
    images: tuple[tuple[str, Path], ...] = ()
    url: str | None = None  # where others reach this server


class Fleet:
    """The sandboxes that this server owns."""

    def __init__(self, store: Store, engine: Engine, folder: Path, settings: Settings) -> None:
        self.store = store
        self.engine = engine
        self.settings = settings
        self.folder = folder
        self.live: dict[str, LiveSandbox] = {}
        self._recent = Recent(folder / "recent")
        self.freezer = Freezer(store, engine)
        self._workshop = Workshop(engine, folder / "boxes")
        self._root: Root = roots.default(folder / "root")
        self._images = {name: self._image(name, place) for name, place in settings.images}
        self._pool = Pool(self._plain, settings.warm)
        self._restoring: set[str] = set()
        # How often since the server began, for whoever watches it.
        self.counters = dict.fromkeys(("created", "restored", "forked", "ended", "broken"), 0)
        self._making = 0
        self._background: set[asyncio.Task[None]] = set()
        self._stopping = False

    @property
    def ready(self) -> int:
        """Bodies that stand ready."""
        return len(self._pool)

    def begin(self) -> None:
        """Stand ready."""
        self._pool.fill()
        self._later(self._watch_idle())

    # -- making

    async def create(
        self, request: CreateRequest, tell: Tell | None = None
    ) -> tuple[LiveSandbox, str]:
        """A new sandbox and its token. Raises HoldfastError."""
        self._check(request)
        self._making += 1
        identity, token = secrets.token_hex(16), secrets.token_urlsafe(32)
        try:
            lease = await self._own(identity, request, tell)
            try:
                body = await self._new_body(request)
            except BaseException:
                await owning.release(lease)
                raise
        finally:
            self._making -= 1
        sandbox = LiveSandbox(identity, keeping.token_hash(token), request, body, body.build.limits)
        sandbox.lease = lease
        self._enlist(sandbox)
        self.counters["created"] += 1
        return sandbox, token

    async def _own(
        self, identity: str, request: CreateRequest, tell: Tell | None = None
    ) -> Lease | None:
        loop = asyncio.get_running_loop()

        def lost(error: HoldfastError) -> None:
            loop.call_soon_threadsafe(self._lease_lost, identity, error)

        return await owning.own(
            self.store, identity, request, tell or owning.silence, lost, url=self.settings.url
        )

    def _lease_lost(self, identity: str, error: HoldfastError) -> None:
        sandbox = self.live.get(identity)
        if sandbox is not None:
            log.warning("sandbox %s is no longer ours: %s", identity, error)
            self._later(self._disowned(sandbox, error))

    async def _disowned(self, sandbox: LiveSandbox, error: HoldfastError) -> None:
        """Somebody else may run it now, so we must not: stop, and say why."""
        client = sandbox.client
        await _tell(client, Fact.LEASE_LOST)
        await _tell(client, Fact.DELETE_BEGUN)
        await self._retire(sandbox)
        await _tell(client, Fact.DELETED)
        await _tell(client, Fact.ENDED)

    def _check(self, request: CreateRequest) -> None:
        """Everything that can be said without starting anything."""
        self._check_room(1)
        if request.enable_checkpoint and not self.settings.checkpoints:
            raise Unsupported("this server takes no checkpoints")
        if request.engine not in (None, "auto", self.engine.name):
            raise Unsupported(
                f"this server has the engine {self.engine.name}, not {request.engine}"
            )
        if request.network:
            self.engine.capabilities.need("network", self.engine.name)
        self._root_of(request)
        if request.filesystem_snapshot_name is not None:
            keeping.check_name(request.filesystem_snapshot_name)

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
        limits = self.settings.limits.capped(request.limits)
        root = self._root_of(request)
        return await self._workshop.make(root, limits, network=request.network, fill=fill)

    async def _plain(self) -> Body:
        return await self._workshop.make(self._root, self.settings.limits)

    def _image(self, name: str, source: Path) -> Root:
        lower, digest = images.prepare(source, self.folder / "images-of-roots" / name)
        return roots.foreign(name, lower, self.folder / "root", digest)

    def _root_of(self, request: CreateRequest) -> Root:
        """Raises NotFound: a checkpoint may name an image that this server does not have."""
        if request.image in (None, "default"):
            return self._root
        if request.image not in self._images:
            raise NotFound(
                f"this server has no image {request.image!r:.100}", hint="serve --image NAME=PATH"
            )
        return self._images[request.image]

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
        self.counters["broken"] += 1
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
        owner = await asyncio.to_thread(self.store.owner, keeping.subject_of(identity))
        if owner is not None:
            raise Conflict(f"the sandbox runs on another server ({owner.url or owner.name})")
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

    async def restore(self, identity: str, kept: Kept, tell: Tell | None = None) -> LiveSandbox:
        """Bring a sandbox back under its own id. Raises HoldfastError; the checkpoint stays."""
        if identity in self._restoring or identity in self.live:
            raise Conflict("another client is restoring this sandbox")
        self._restoring.add(identity)
        try:
            lease = await self._own(identity, kept.request, tell)
            try:
                sandbox = await self._revive(identity, kept.token, kept)
            except BaseException:
                await owning.release(lease)
                raise
            sandbox.lease = lease
            self._enlist(sandbox)
            self.counters["restored"] += 1
            return sandbox
        finally:
            self._restoring.discard(identity)

    async def _revive(self, identity: str, token: str, kept: Kept) -> LiveSandbox:
        recent = self._recent.take(kept.checkpoint)
        if recent is not None:
            try:
                fill = partial(keeping.unpack_files, recent.files)
                return await self._thawed(identity, token, kept, fill, recent.image)
            finally:
                await asyncio.to_thread(recent.discard)
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
        limits = self.settings.limits.capped(request.limits)
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
            self.freezer.check(sandbox, during_execution or force)
            began = time.perf_counter()
            frozen = await sandbox.freeze()
            try:
                checkpoint = await self.freezer.save(sandbox, frozen, reason)
            except BaseException:
                await sandbox.thaw()
                await asyncio.to_thread(frozen.discard)
                raise
            await asyncio.to_thread(self._recent.keep, checkpoint.id, frozen)
            pause = (time.perf_counter() - began) * 1000
            await self._delete(sandbox, tell)
            return Captured(checkpoint, pause)

    async def _delete(self, sandbox: LiveSandbox, tell: Tell) -> None:
        """Stop running a sandbox and let others own it, step by step for whoever watches."""
        await tell(Fact.DELETE_BEGUN)
        await self._retire(sandbox)
        if sandbox.request.enable_sandbox_handoff:
            await tell(Fact.LOCK_RELEASE_BEGUN)
        await owning.release(sandbox.lease)
        if sandbox.request.enable_sandbox_handoff:
            await tell(Fact.LOCK_RELEASED)
        await tell(Fact.DELETED)

    async def fork(self, sandbox: LiveSandbox, count: int) -> list[tuple[LiveSandbox, str]]:
        """Live copies, each with an id and a token of its own; all of them or none."""
        self.engine.capabilities.need("fork", self.engine.name)
        self._check_room(count)
        async with sandbox.work:
            self.freezer.check(sandbox, self.engine.capabilities.during_execution)
            frozen, _ = await self.freezer.moment(sandbox)
        try:
            origin = await self.freezer.save(sandbox, frozen, f"fork into {count}")
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
                copy.lease = await self._own(copy.identity, copy.request)
                self._enlist(copy)
                self.counters["forked"] += 1
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
        async with sandbox.work:
            target = await asyncio.to_thread(self._roll_back, sandbox, to)
            try:
                kept = await asyncio.to_thread(keeping.read, self.store, target)
                kept.check(self.engine, self._root_of(sandbox.request).digest)
                back = await self._revive(sandbox.identity, sandbox.token, kept)
            except BaseException:
                await asyncio.to_thread(self._undo, sandbox)
                raise
            old, sandbox.body = sandbox.body, back.body
            sandbox.epoch = back.epoch
            sandbox.foreground, sandbox.beside = back.foreground, back.beside
            self._watch(sandbox)
            await old.end()
            self._later(old.clear())
            return target

    def _roll_back(self, sandbox: LiveSandbox, to: str | None) -> Checkpoint:
        subject = keeping.subject_of(sandbox.identity)
        return self.store.rollback(subject, to, lease=sandbox.lease)

    def _undo(self, sandbox: LiveSandbox) -> None:
        self.store.undo(keeping.subject_of(sandbox.identity), lease=sandbox.lease)

    # -- ending

    async def kill(self, sandbox: LiveSandbox, tell: Tell) -> None:
        """End a sandbox for good; its checkpoints stay in the store, but nobody attaches."""
        async with sandbox.work:
            if sandbox.lease is not None:
                await asyncio.to_thread(self._mark_killed, sandbox.identity)
            await self._delete(sandbox, tell)

    def _mark_killed(self, identity: str) -> None:
        head = self.store.head(keeping.subject_of(identity))
        if head is not None:
            self.store.tag(head, KILLED)

    async def _retire(self, sandbox: LiveSandbox) -> None:
        sandbox.ended = True
        self.counters["ended"] += 1
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
                await self._delete(sandbox, lambda fact: _tell(client, fact))
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
                    await self.put_away(
                        sandbox, owning.silence, reason="the server stopped", force=True
                    )
            except HoldfastError as error:
                troubles.append(f"sandbox {sandbox.identity}: {error}")
            if not sandbox.ended:
                await self._delete(sandbox, owning.silence)

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


async def _tell(client: Client | None, fact: Fact, error: HoldfastError | None = None) -> None:
    if client is not None:
        await client.tell(fact, error=error)


def _discard(image: Path) -> None:
    if image.is_dir():
        for each in image.iterdir():
            each.unlink()
        image.rmdir()
