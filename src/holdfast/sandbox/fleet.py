"""All sandboxes of one server: made, found, frozen, brought back, ended."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import (
    Conflict,
    Denied,
    HoldfastError,
    LeaseLost,
    NotFound,
)
from holdfast.model.owner import Owner
from holdfast.model.tracing import span
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.sandbox import handing, keeping, owning, watching
from holdfast.sandbox.admission import OWNER, Admission, Gate, Tenant
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.catalogue import Catalogue
from holdfast.sandbox.chores import Chores
from holdfast.sandbox.contract import Engine
from holdfast.sandbox.egress import Egress
from holdfast.sandbox.freezing import Freezer
from holdfast.sandbox.handing import Plea
from holdfast.sandbox.keeping import Kept
from holdfast.sandbox.leaving import Exits
from holdfast.sandbox.live import Frozen, LiveSandbox
from holdfast.sandbox.making import Maker
from holdfast.sandbox.owning import Tell
from holdfast.sandbox.pool import over
from holdfast.sandbox.prepared import Prepared
from holdfast.sandbox.reviving import Reviver
from holdfast.sandbox.settings import Settings
from holdfast.sandbox.templates import Templates
from holdfast.sandbox.whole import in_thread, whole
from holdfast.store import Store
from holdfast.store.leases import Lease

log = logging.getLogger("holdfast.sandbox")
STOP_SECONDS = 20.0
# Is given a sandbox before anybody else can find it, so as to be its client.
Hold = Callable[[LiveSandbox], None]
_ID = re.compile(r"[0-9a-f]{32}")


def check_holder(holder: str, tenant: Tenant) -> None:
    """Whether somebody may use a sandbox whose token they have: it is theirs, the owner's, or they
    are the owner. Raises Denied."""
    if holder and tenant.name not in ("", holder):
        raise Denied("the sandbox belongs to another token of this server")


def alone(sandbox: LiveSandbox) -> None:
    """It has no client yet."""


class Fleet:
    """The sandboxes that this server owns."""

    def __init__(self, store: Store, engine: Engine, folder: Path, settings: Settings) -> None:
        self.store = store
        self.engine = engine
        self.settings = settings
        self.live: dict[str, LiveSandbox] = {}
        self._chores = Chores()
        self.freezer = Freezer(store, engine, self._chores)
        self._workshop = Workshop(
            engine, folder / "boxes", settings.limits.disk_bytes, settings.patience
        )
        self._catalogue = Catalogue(folder, settings.images)
        self._reviver = Reviver(
            store, self._workshop, self._catalogue, settings, folder, self._chores
        )
        self.templates = Templates(
            self.freezer, self._workshop, self._catalogue, settings, folder, self._chores
        )
        self._maker = Maker(
            store, self._workshop, self._catalogue, settings, self.templates, self._chores
        )
        # How often since the server began, for whoever watches it.
        self.counters = dict.fromkeys(
            ("created", "restored", "forked", "handed_over", "ended", "broken"), 0
        )
        self.exits = Exits(
            self.live, self.freezer, self._reviver.recent, self._chores, self.counters
        )
        gate = Gate(settings.starting, settings.waiting, settings.wait_seconds)
        held = self.live.values()
        self.admission = Admission(settings.most, lambda: (each.tenant for each in held), gate)
        self._restoring: set[str] = set()
        self._watches: list[asyncio.Task[None]] = []
        self._stopping = False

    @property
    def ready(self) -> int:
        """Bodies that stand ready."""
        return len(self._maker.pool)

    @property
    def prepared(self) -> int:
        """Boxes that wait for what is brought back."""
        return len(self._reviver.pool)

    def begin(self) -> None:
        """Stand ready."""
        self._chores.begin(in_thread(self._warm))
        self._maker.pool.fill()
        self._reviver.pool.fill()
        self._chores.begin(self.templates.begin())
        watches = (
            watching.idle(self.live, lambda each: self._chores.begin(self.exits.idle(each))),
            watching.wanted(self.live, self.store, self._wanted),
        )
        self._watches = [asyncio.create_task(each) for each in watches]

    def _warm(self) -> None:
        """What would make the first checkpoint wait: libraries, tables, an engine's version."""
        self.engine.environment()
        keeping.warm(self.store)

    def _wanted(self, sandbox: LiveSandbox) -> None:
        async def give_up() -> None:
            await self.exits.give_up(sandbox)

        self._chores.begin(give_up())

    # -- making

    async def create(
        self,
        request: CreateRequest,
        tell: Tell | None = None,
        tenant: Tenant = OWNER,
        hold: Hold = alone,
    ) -> tuple[LiveSandbox, str]:
        """A new sandbox and its token. `hold` is called with it before anybody else can find it.
        Raises HoldfastError, Busy at a limit, or is cancelled; then there is none."""
        self._check_going()
        request = tenant.allowance.settle(request, self.engine.name, self.settings.limits)
        self._maker.check(request)
        token = secrets.token_urlsafe(32)
        with self.admission.room(tenant):
            async with self.admission.gate.turn(tenant.name):
                creating = self._create(secrets.token_hex(16), token, request, tell, tenant)
                sandbox = await whole(creating, undo=_give_back)
            self._enlist(sandbox, hold)
        self.counters["created"] += 1
        return sandbox, token

    async def _create(
        self, identity: str, token: str, request: CreateRequest, tell: Tell | None, tenant: Tenant
    ) -> LiveSandbox:
        async with AsyncExitStack() as undo:
            lease = await self._own(identity, request, tell)
            undo.push_async_callback(owning.give_back, lease)
            with span("sandbox.make", sandbox=identity, engine=self.engine.name):
                made = await self._maker.make(request, tenant)
            sandbox = LiveSandbox(
                identity,
                keeping.token_hash(token),
                made.request,
                made.body,
                made.body.build.limits,
                made.epoch,
                tenant,
            )
            undo.push_async_callback(sandbox.give_up)
            sandbox.session, sandbox.lease = made.session, lease
            await self._let_out(sandbox)
            undo.pop_all()
            return sandbox

    async def _own(
        self, identity: str, request: CreateRequest, tell: Tell | None = None, wait: float = 0.0
    ) -> Lease | None:
        loop = asyncio.get_running_loop()

        def lost(error: HoldfastError) -> None:
            loop.call_soon_threadsafe(self._lease_lost, identity, error)

        told, url = tell or owning.silence, self.settings.url
        return await owning.own(self.store, identity, request, told, lost, url=url, wait=wait)

    def _lease_lost(self, identity: str, error: HoldfastError) -> None:
        sandbox = self.live.get(identity)
        if sandbox is not None:
            log.warning("sandbox %s is no longer ours: %s", identity, error)
            self._chores.begin(self.exits.disowned(sandbox))

    def _check_going(self) -> None:
        if self._stopping:
            raise Conflict("the server is stopping")

    async def _let_out(self, sandbox: LiveSandbox) -> None:
        """Let it reach what it may, before anybody can find it."""
        if sandbox.request.egress and self.settings.egress != "off":
            sandbox.egress = Egress(sandbox.request.egress, self.settings.egress)
        await sandbox.go_out()

    def _enlist(self, sandbox: LiveSandbox, hold: Hold = alone) -> None:
        """It can be found from now on. Whoever holds it, holds it already: no await before."""
        hold(sandbox)
        self.live[sandbox.identity] = sandbox
        self._watch(sandbox)
        if sandbox.lease is not None:
            try:
                sandbox.lease.check()
            except LeaseLost as error:  # while nobody could find it
                self._lease_lost(sandbox.identity, error)

    def _watch(self, sandbox: LiveSandbox) -> None:
        body = sandbox.body
        body.line.gone.add_done_callback(lambda why: self._lost(sandbox, body, why.result()))

    def _lost(self, sandbox: LiveSandbox, body: Body, why: str) -> None:
        """An agent went away. When nobody asked for that, the sandbox broke."""
        if sandbox.ended or sandbox.body is not body:
            return
        self._chores.begin(self.exits.broken(sandbox, why))

    # -- finding

    async def find(self, identity: str, token: str, tenant: Tenant = OWNER) -> LiveSandbox | Kept:
        """A sandbox that lives here, or one that could be restored; another server that runs it
        is asked to hand it over. The token is checked before anything is touched.
        Raises NotFound, Denied, Busy, or Conflict while it is in use."""
        if not _ID.fullmatch(identity):
            raise NotFound(f"there is no sandbox {identity!r:.50}")
        live = self.live.get(identity)
        if live is not None:
            if not keeping.fits(token, live.token):
                raise Denied("the sandbox token is wrong")
            check_holder(live.holder, tenant)
            if live.client is not None:
                raise Conflict("another client is attached to this sandbox")
            return live
        owner, kept = await in_thread(self._looked, identity)
        if kept is not None:
            if not keeping.fits(token, kept.token):
                raise Denied("the sandbox token is wrong")
            check_holder(kept.tenant, tenant)
        if identity in self._restoring:
            raise Conflict("another client is restoring this sandbox")
        if kept is not None and owner is None:
            return kept
        if owner is None or (kept is not None and not kept.request.enable_sandbox_handoff):
            raise Conflict("the sandbox runs on another server")
        self.admission.check(tenant)  # before its owner lets it go
        plea = Plea(sandbox_id=identity, token=keeping.token_hash(token), lease=owner.token)
        if await in_thread(handing.ask, self.store, owner, plea):
            kept = await in_thread(self._kept, identity)
            check_holder(kept.tenant, tenant)
            return kept
        try:
            # Its owner may have put it away all the same, and only its answer was not waited for.
            kept = await in_thread(self._kept, identity, kept)
        except NotFound:
            raise Conflict("the sandbox runs on another server, which cannot be reached") from None
        check_holder(kept.tenant, tenant)
        await in_thread(handing.want, self.store, kept.checkpoint, self.settings.url)
        return kept

    def _looked(self, identity: str) -> tuple[Owner | None, Kept | None]:
        """Who runs a sandbox, and what is kept of it. Raises NotFound."""
        with self.store.steady():
            owner = self.store.owner(keeping.subject_of(identity))
            try:
                return owner, self._kept(identity)
            except NotFound:
                if owner is None:
                    raise
                return owner, None  # it was never frozen; its owner knows the token

    def _kept(self, identity: str, known: Kept | None = None) -> Kept:
        """The newest of a sandbox; what is known of that already need not be read again."""
        with self.store.steady():
            head = self.store.head(keeping.subject_of(identity))
            if head is None or keeping.KILLED in head.tags:
                raise NotFound(f"there is no sandbox {identity}")
            same = known is not None and known.checkpoint == head.id
            return known if known is not None and same else keeping.read(self.store, head)

    def _ours(self, identity: str, kept: Kept) -> Kept:
        """What is to be brought back, now that nobody else owns it: whoever had it until now may
        have frozen it once more. Raises Unsupported."""
        with self.store.steady():
            kept = self._kept(identity, kept)
            kept.check(self.engine, self._catalogue.find(kept.request.image).digest)
            if kept.request.enable_sandbox_handoff:
                handing.have(self.store, identity)
        return kept

    def check(self, kept: Kept, tenant: Tenant = OWNER) -> None:
        """Whether it can be restored here, as far as that can be said. Raises HoldfastError."""
        self._check_going()
        self.admission.check(tenant)
        self._maker.check_network(kept.request)
        if kept.tenant == tenant.name:
            tenant.allowance.check(kept.request, self.engine.name)
        kept.check(self.engine, self._catalogue.find(kept.request.image).digest)

    async def restore(
        self,
        identity: str,
        kept: Kept,
        tell: Tell | None = None,
        tenant: Tenant = OWNER,
        hold: Hold = alone,
    ) -> LiveSandbox:
        """Bring a sandbox back under its own id. `hold` is called with it before anybody else can
        find it. Raises HoldfastError, or is cancelled; the checkpoint stays, and nothing else."""
        with span("sandbox.restore", sandbox=identity), self._chores.moving():
            if identity in self._restoring or identity in self.live:
                raise Conflict("another client is restoring this sandbox")
            self._restoring.add(identity)
            try:
                with self.admission.room(tenant):
                    restoring = self._restore(identity, kept, tell, tenant)
                    sandbox = await whole(restoring, undo=_give_back)
                    self._enlist(sandbox, hold)
            finally:
                self._restoring.discard(identity)
        self.counters["restored"] += 1
        return sandbox

    async def _restore(
        self, identity: str, kept: Kept, tell: Tell | None, tenant: Tenant
    ) -> LiveSandbox:
        wait = handing.PATIENCE_SECONDS if kept.request.enable_sandbox_handoff else 0.0
        async with AsyncExitStack() as undo:
            lease = await self._own(identity, kept.request, tell, wait)
            undo.push_async_callback(owning.give_back, lease)
            kept = await in_thread(self._ours, identity, kept)
            async with self.admission.gate.turn(tenant.name):
                sandbox = await self._reviver.revive(identity, kept.token, kept)
            undo.push_async_callback(sandbox.give_up)
            sandbox.lease, sandbox.tenant = lease, tenant
            await self._let_out(sandbox)
            undo.pop_all()
            return sandbox

    # -- copies and earlier moments

    async def fork(self, sandbox: LiveSandbox, count: int) -> list[tuple[LiveSandbox, str]]:
        """Live copies, each with an id and a token of its own; all of them, or none, and then
        nothing of them stays in the store either."""
        self.engine.capabilities.need("fork", self.engine.name)
        self._check_going()
        with self.admission.room(sandbox.tenant, count):
            made = await whole(self._fork(sandbox, count), undo=_Copies.undo)
            for copy, _ in made.found:
                self._enlist(copy)
        self.counters["forked"] += count
        return made.found

    async def _fork(self, sandbox: LiveSandbox, count: int) -> _Copies:
        async with sandbox.work:
            await self.freezer.ready(sandbox, self.engine.capabilities.during_execution)
            frozen, _ = await self.freezer.moment(sandbox)
        try:
            async with AsyncExitStack() as undo:
                origin = await self.freezer.save(sandbox, frozen, f"fork into {count}")
                undo.push_async_callback(self._forget, origin, sandbox.lease)
                kept = await in_thread(keeping.read, self.store, origin)
                found = [
                    await self._forked(sandbox, kept, origin, frozen, undo) for _ in range(count)
                ]
                if not all(copy.body.alive for copy, _ in found):
                    raise HoldfastError("a copy ended while the others were made")
                return _Copies(found, undo.pop_all())
        finally:
            self.freezer.discard(frozen)

    async def _forked(
        self,
        sandbox: LiveSandbox,
        kept: Kept,
        origin: Checkpoint,
        frozen: Frozen,
        undo: AsyncExitStack,
    ) -> tuple[LiveSandbox, str]:
        identity, token = secrets.token_hex(16), secrets.token_urlsafe(32)
        hashed = keeping.token_hash(token)
        # The copy runs from the local image; the store only notes where it came from.
        copy = await self._reviver.copy(identity, hashed, kept, frozen)
        undo.push_async_callback(copy.give_up)
        copy.tenant = sandbox.tenant
        noted = await in_thread(keeping.fork, self.store, origin, identity, hashed)
        undo.push_async_callback(self._forget, noted)
        copy.lease = await self._own(identity, copy.request)
        undo.push_async_callback(owning.give_back, copy.lease)
        await self._let_out(copy)
        return copy, token

    async def _forget(self, checkpoint: Checkpoint, lease: Lease | None = None) -> None:
        """Nothing comes of it after all. What stays is only space, so it is no error."""
        try:
            await in_thread(self.store.delete, checkpoint, lease=lease)
        except (HoldfastError, OSError) as error:
            log.warning("%s of %s stays: %s", checkpoint.short, checkpoint.subject, error)

    async def rollback(self, sandbox: LiveSandbox, to: str | None = None) -> Checkpoint:
        """Go back to a checkpoint of this sandbox, keeping its id, its token and its client. Raises
        HoldfastError; then it goes on as it was, and so does its head. Cancelled, it goes back all
        the same, or does not."""
        return await whole(self._rollback(sandbox, to))

    async def _rollback(self, sandbox: LiveSandbox, to: str | None) -> Checkpoint:
        subject = keeping.subject_of(sandbox.identity)
        async with sandbox.work:
            if sandbox.ended:
                raise NotFound("the sandbox has ended")
            target = await in_thread(self._rollback_target, sandbox, to)
            back = await self.revived(sandbox, target)
            try:
                # The last step that can fail.
                made = await in_thread(self.store.rollback, subject, target, lease=sandbox.lease)
            except BaseException:
                await back.give_up()
                raise
            await self.give_up(self.replace(sandbox, back))
            await sandbox.go_out()
            return made

    async def revived(self, sandbox: LiveSandbox, checkpoint: Checkpoint) -> LiveSandbox:
        """What a sandbox was at a checkpoint, beside it, in a body of its own. Raises HoldfastError
        and leaves nothing."""
        kept = await in_thread(keeping.read, self.store, checkpoint)
        kept.check(self.engine, self._catalogue.find(sandbox.request.image).digest)
        return await self._reviver.revive(sandbox.identity, sandbox.token, kept)

    def replace(self, sandbox: LiveSandbox, back: LiveSandbox) -> Body:
        """Let a sandbox go on as what it was; gives the body that it had. Cannot fail."""
        sandbox.stop_timers()
        old = sandbox.become(back)
        self._watch(sandbox)
        return old

    async def give_up(self, body: Body) -> None:
        """End a body that nobody needs any more."""
        try:
            await body.end()
        except (HoldfastError, OSError):
            log.exception("a body did not end in good order")  # clearing it away ends it again
        self._chores.begin(body.clear())

    def _rollback_target(self, sandbox: LiveSandbox, to: str | None) -> Checkpoint:
        subject = keeping.subject_of(sandbox.identity)
        if to is not None:
            try:
                known = self.store.resolve(to).subject == subject
            except HoldfastError:
                known = False
            if not known:  # and nothing is said of what others have under that name
                raise NotFound(f"this sandbox has no checkpoint {to!r:.100}")
        return self.store.rollback_target(subject, to)

    async def stop(self) -> list[str]:
        """End everything in good order: what may be checkpointed is. Gives what could not be."""
        self._stopping = True
        for watch in self._watches:
            watch.cancel()
        left: list[Body | Prepared] = [*await self._maker.pool.close()]
        for each in (*left, *await self._reviver.pool.close()):
            self._chores.begin(over(each))
        await self.templates.close()
        stopping = (self.exits.stop(each) for each in list(self.live.values()))
        told = await asyncio.gather(*stopping, return_exceptions=True)
        await self._workshop.close()
        await self._chores.finish(STOP_SECONDS)
        return [str(trouble) or type(trouble).__name__ for trouble in told if trouble]


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies that nobody knows of yet, with their tokens, and the way to be rid of them."""

    found: list[tuple[LiveSandbox, str]]
    _way_back: AsyncExitStack

    async def undo(self) -> None:
        await self._way_back.aclose()


async def _give_back(sandbox: LiveSandbox) -> None:
    """One that nobody was told of."""
    await sandbox.give_up()
    await owning.give_back(sandbox.lease)
