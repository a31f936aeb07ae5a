"""Making: new bodies for sandboxes, out of the pool where what was asked for is plain."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from holdfast.model.errors import BadInput, NotFound, Unsupported
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.sandbox import egress, keeping
from holdfast.sandbox.admission import OWNER, Tenant
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.catalogue import Catalogue
from holdfast.sandbox.chores import Chores
from holdfast.sandbox.keeping import Kept
from holdfast.sandbox.pool import Pool
from holdfast.sandbox.settings import Settings
from holdfast.sandbox.templates import Templates
from holdfast.sandbox.whole import in_thread, whole
from holdfast.store import Store


@dataclass(frozen=True, slots=True)
class Made:
    """A body, and what a sandbox in it begins with."""

    body: Body
    request: CreateRequest
    epoch: int = 0
    session: bool = False


class Maker:
    """Makes what a client asks for, within what the server allows."""

    def __init__(
        self,
        store: Store,
        workshop: Workshop,
        catalogue: Catalogue,
        settings: Settings,
        templates: Templates,
        chores: Chores,
    ) -> None:
        self._store = store
        self._workshop = workshop
        self._catalogue = catalogue
        self._settings = settings
        self._templates = templates
        self.pool: Pool[Body] = Pool(self._plain, settings.warm, chores)

    def check(self, request: CreateRequest) -> None:
        """Everything that can be said without starting anything. Raises HoldfastError."""
        engine = self._workshop.engine
        if request.enable_checkpoint and not self._settings.checkpoints:
            raise Unsupported("this server takes no checkpoints")
        if request.engine not in (None, "auto", engine.name):
            raise Unsupported(f"this server has the engine {engine.name}, not {request.engine}")
        self.check_network(request)
        if request.network:
            engine.capabilities.need("network", engine.name)
        if request.offline and (request.network or request.ports or request.egress):
            raise BadInput(
                "a sandbox that is offline has no ports, no egress and no network",
                hint="leave `offline` away: without the others there is a loopback only",
            )
        egress.check_rules(request.egress)
        if request.egress and self._settings.egress == "off":
            raise Unsupported("this server lets no sandbox out", hint="serve --egress public")
        self._catalogue.find(request.image)
        for name in (request.name, request.filesystem_snapshot_name, request.template):
            if name is not None:
                keeping.check_name(name)
        if request.template is not None and request.filesystem_snapshot_name is not None:
            raise BadInput("a template has files of its own", hint="leave the snapshot away")
        if request.template is not None and request.offline:
            raise BadInput(
                "what runs in a template was begun before", hint="leave `offline` or it away"
            )

    def check_network(self, request: CreateRequest) -> None:
        """Whether this server gives the host's network, if that is asked for: by whoever makes a
        sandbox, by a template, or by a checkpoint. Raises Unsupported."""
        if request.network and not self._settings.network:
            raise Unsupported(
                "this server gives no sandbox the host's network", hint="serve --network on"
            )

    async def make(self, request: CreateRequest, tenant: Tenant = OWNER) -> Made:
        """Raises HoldfastError and leaves nothing."""
        if request.template is None:
            return Made(await self._body(request, tenant), request)
        body, kept = await self._templates.body(request, tenant)
        settled = msgspec.structs.replace(
            request, image=kept.request.image, network=kept.request.network
        )
        return Made(body, settled, kept.epoch, kept.session)

    async def _body(self, request: CreateRequest, tenant: Tenant) -> Body:
        plain = (
            request.limits is None
            and request.filesystem_snapshot_name is None
            and not request.network
            and request.image in (None, "default")
        )
        if plain and (ready := self.pool.take()) is not None:
            return ready
        fill = None
        root = self._catalogue.find(request.image)
        if request.filesystem_snapshot_name is not None:
            asked = request.filesystem_snapshot_name
            kept = await in_thread(self._snapshot, asked, tenant)
            if not keeping.is_same_root(kept.environment.get("root"), root.digest, memory=False):
                raise Unsupported("the snapshot belongs to another root")
            fill = keeping.filling(self._store, kept)
        limits = self._settings.limits.capped(request.limits)
        return await self._workshop.make(root, limits, network=request.network, fill=fill)

    def _snapshot(self, name: str, tenant: Tenant) -> Kept:
        make = keeping.snapshot_subject
        found = keeping.find_name(self._store, make, name, tenant.name, tenant.shared)
        try:
            return keeping.look(self._store, make(found))
        except NotFound:
            raise NotFound(
                f"there is no snapshot {name!r:.100}", hint="snapshot_filesystem makes one"
            ) from None

    async def _plain(self) -> Body:
        body = await self._workshop.make(self._catalogue.default, self._settings.limits)
        try:
            await body.warm()  # nobody waits for it yet
        except BaseException:
            await whole(body.give_up())
            raise
        return body
