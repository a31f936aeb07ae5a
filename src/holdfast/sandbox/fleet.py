"""All sandboxes of one server: made, found, frozen, brought back, ended."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from pathlib import Path

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import (
    Conflict,
    Denied,
    HoldfastError,
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
from holdfast.sandbox.prepared import Prepared
from holdfast.sandbox.reviving import Reviver
from holdfast.sandbox.settings import Settings
from holdfast.sandbox.templates import Templates
from holdfast.store import Store
from holdfast.store.leases import Lease

log = logging.getLogger("holdfast.sandbox")
STOP_SECONDS = 20.0
_ID = re.compile(r"[0-9a-f]{32}")


def check_holder(holder: str, tenant: Tenant) -> None:
    """Whether somebody may use a sandbox whose token they have: it is theirs, the owner's, or they
    are the owner. Raises Denied."""
    if holder and tenant.name not in ("", holder):
        raise Denied("the sandbox belongs to another token of this server")


class Fleet:
    """The sandboxes that this server owns."""

    def __init__(self, store: Store, engine: Engine, folder: Path, settings: Settings) -> None:
        self.store = store
        self.engine = engine
        self.settings = settings
        self.live: dict[str, LiveSandbox] = {}
        self._chores = Chores()
        self.freezer = Freezer(store, engine, self._chores)
        self._workshop = Workshop(engine, folder / "boxes", settings.limits.disk_bytes)
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
        self._chores.begin(asyncio.to_thread(self._warm))
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
        self, request: CreateRequest, tell: Tell | None = None, tenant: Tenant = OWNER
    ) -> tuple[LiveSandbox, str]:
        """A new sandbox and its token. Raises HoldfastError; Busy at a limit."""
        self._check_going()
        request = tenant.allowance.settle(request, self.engine.name, self.settings.limits)
        self._maker.check(request)
        identity, token = secrets.token_hex(16), secrets.token_urlsafe(32)
        with self.admission.room(tenant):
            async with self.admission.gate.turn(tenant.name):
                lease = await self._own(identity, request, tell)
                try:
                    with span("sandbox.make", sandbox=identity, engine=self.engine.name):
                        made = await self._maker.make(request, tenant)
                except BaseException:
                    await owning.release(lease)
                    raise
        limits = made.body.build.limits
        sandbox = LiveSandbox(
            identity, keeping.token_hash(token), made.request, made.body, limits, made.epoch, tenant
        )
        sandbox.session = made.session
        sandbox.lease = lease
        self._enlist(sandbox)
        await sandbox.go_out()
        self.counters["created"] += 1
        return sandbox, token

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

    def _enlist(self, sandbox: LiveSandbox) -> None:
        if sandbox.request.egress and self.settings.egress != "off":
            sandbox.egress = Egress(sandbox.request.egress, self.settings.egress)
        self.live[sandbox.identity] = sandbox
        self._watch(sandbox)

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
        owner, kept = await asyncio.to_thread(self._looked, identity)
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
        if await asyncio.to_thread(handing.ask, self.store, owner, plea):
            kept = await asyncio.to_thread(self._kept, identity)
            check_holder(kept.tenant, tenant)
            return kept
        try:
            # Its owner may have put it away all the same, and only its answer was not waited for.
            kept = await asyncio.to_thread(self._kept, identity, kept)
        except NotFound:
            raise Conflict("the sandbox runs on another server, which cannot be reached") from None
        check_holder(kept.tenant, tenant)
        await asyncio.to_thread(handing.want, self.store, kept.checkpoint, self.settings.url)
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
        if kept.tenant == tenant.name:
            tenant.allowance.check(kept.request, self.engine.name)
        kept.check(self.engine, self._catalogue.find(kept.request.image).digest)

    async def restore(
        self, identity: str, kept: Kept, tell: Tell | None = None, tenant: Tenant = OWNER
    ) -> LiveSandbox:
        """Bring a sandbox back under its own id. Raises HoldfastError; the checkpoint stays."""
        with span("sandbox.restore", sandbox=identity), self._chores.moving():
            return await self._restore(identity, kept, tell, tenant)

    async def _restore(
        self, identity: str, kept: Kept, tell: Tell | None, tenant: Tenant
    ) -> LiveSandbox:
        if identity in self._restoring or identity in self.live:
            raise Conflict("another client is restoring this sandbox")
        self._restoring.add(identity)
        wait = handing.PATIENCE_SECONDS if kept.request.enable_sandbox_handoff else 0.0
        try:
            with self.admission.room(tenant):
                lease = await self._own(identity, kept.request, tell, wait)
                try:
                    kept = await asyncio.to_thread(self._ours, identity, kept)
                    async with self.admission.gate.turn(tenant.name):
                        sandbox = await self._reviver.revive(identity, kept.token, kept)
                except BaseException:
                    await owning.release(lease)
                    raise
            sandbox.lease, sandbox.tenant = lease, tenant
            self._enlist(sandbox)
            await sandbox.go_out()
            self.counters["restored"] += 1
            return sandbox
        finally:
            self._restoring.discard(identity)

    # -- copies and earlier moments

    async def fork(self, sandbox: LiveSandbox, count: int) -> list[tuple[LiveSandbox, str]]:
        """Live copies, each with an id and a token of its own; all of them or none."""
        self.engine.capabilities.need("fork", self.engine.name)
        self._check_going()
        with self.admission.room(sandbox.tenant, count):
            made = await self._fork(sandbox, count)
        for copy, _ in made:
            copy.tenant = sandbox.tenant
            self._enlist(copy)
            await copy.go_out()
            self.counters["forked"] += 1
        return made

    async def _fork(self, sandbox: LiveSandbox, count: int) -> list[tuple[LiveSandbox, str]]:
        async with sandbox.work:
            self.freezer.check(sandbox, self.engine.capabilities.during_execution)
            await sandbox.keep_session()
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
                    await self.exits.retire(copy)
                raise
            for copy, _ in made:
                copy.lease = await self._own(copy.identity, copy.request)
            return made
        finally:
            self.freezer.discard(frozen)

    async def _forked(
        self, kept: Kept, origin: Checkpoint, frozen: Frozen
    ) -> tuple[LiveSandbox, str]:
        identity, token = secrets.token_hex(16), secrets.token_urlsafe(32)
        hashed = keeping.token_hash(token)
        # The copy runs from the local image; the store only notes where it came from.
        copy = await self._reviver.copy(identity, hashed, kept, frozen)
        await asyncio.to_thread(keeping.fork, self.store, origin, identity, hashed)
        return copy, token

    async def rollback(self, sandbox: LiveSandbox, to: str | None = None) -> Checkpoint:
        """Go back to a checkpoint of this sandbox, keeping its id, its token and its client."""
        async with sandbox.work:
            target = await asyncio.to_thread(self._roll_back, sandbox, to)
            try:
                back = await self.revived(sandbox, target)
            except BaseException:
                await asyncio.to_thread(self._undo, sandbox)
                raise
            await self.give_up(self.replace(sandbox, back))
            return target

    async def revived(self, sandbox: LiveSandbox, checkpoint: Checkpoint) -> LiveSandbox:
        """What a sandbox was at a checkpoint, beside it, in a body of its own. Raises HoldfastError
        and leaves nothing."""
        kept = await asyncio.to_thread(keeping.read, self.store, checkpoint)
        kept.check(self.engine, self._catalogue.find(sandbox.request.image).digest)
        return await self._reviver.revive(sandbox.identity, sandbox.token, kept)

    def replace(self, sandbox: LiveSandbox, back: LiveSandbox) -> Body:
        """Let a sandbox go on as what it was; gives the body that it had."""
        old = sandbox.become(back)
        self._watch(sandbox)
        self._chores.begin(sandbox.go_out())
        return old

    async def give_up(self, body: Body) -> None:
        """End a body that nobody needs any more."""
        await body.end()
        self._chores.begin(body.clear())

    def _roll_back(self, sandbox: LiveSandbox, to: str | None) -> Checkpoint:
        subject = keeping.subject_of(sandbox.identity)
        if to is not None:
            try:
                known = self.store.resolve(to).subject == subject
            except HoldfastError:
                known = False
            if not known:  # and nothing is said of what others have under that name
                raise NotFound(f"this sandbox has no checkpoint {to!r:.100}")
        return self.store.rollback(subject, to, lease=sandbox.lease)

    def _undo(self, sandbox: LiveSandbox) -> None:
        self.store.undo(keeping.subject_of(sandbox.identity), lease=sandbox.lease)

    async def stop(self) -> list[str]:
        """End everything in good order: what may be checkpointed is. Gives what could not be."""
        self._stopping = True
        for watch in self._watches:
            watch.cancel()
        left: list[Body | Prepared] = [*await self._maker.pool.close()]
        for each in (*left, *await self._reviver.pool.close()):
            await each.end()
            self._chores.begin(each.clear())
        await self.templates.close()
        told = await asyncio.gather(*(self.exits.stop(each) for each in list(self.live.values())))
        await self._workshop.close()
        await self._chores.finish(STOP_SECONDS)
        return [trouble for trouble in told if trouble]
