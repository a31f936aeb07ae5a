"""Reviving: a live sandbox out of a checkpoint, from this disk where it is still there, in a box
that was prepared where one fits."""

from __future__ import annotations

import logging
import secrets
from functools import partial
from pathlib import Path

from holdfast.model.errors import HoldfastError
from holdfast.sandbox import keeping
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.catalogue import Catalogue
from holdfast.sandbox.chores import Chores
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.execution import Execution
from holdfast.sandbox.keeping import Kept
from holdfast.sandbox.live import Frozen, LiveSandbox, discard_image
from holdfast.sandbox.pool import Pool
from holdfast.sandbox.prepared import Prepared, prepare
from holdfast.sandbox.recent import Recent
from holdfast.sandbox.settings import Settings
from holdfast.sandbox.upper import Fill
from holdfast.sandbox.whole import in_thread, whole
from holdfast.store import Store

log = logging.getLogger("holdfast.sandbox")


class Reviver:
    """Brings sandboxes back in bodies of one workshop."""

    def __init__(
        self,
        store: Store,
        workshop: Workshop,
        catalogue: Catalogue,
        settings: Settings,
        folder: Path,
        chores: Chores,
    ) -> None:
        self._store = store
        self._workshop = workshop
        self._catalogue = catalogue
        self._limits = settings.limits
        self._images = folder / "images"
        self._chores = chores
        self.recent = Recent(folder / "recent")
        able = settings.checkpoints and workshop.engine.capabilities.prepared
        make = partial(prepare, workshop, catalogue.default, settings.limits)
        self.pool: Pool[Prepared] = Pool(make, settings.warm if able else 0, chores)

    async def revive(self, identity: str, token: str, kept: Kept) -> LiveSandbox:
        """Raises HoldfastError or is cancelled, and leaves nothing; the checkpoint stays."""
        return await whole(self._revive(identity, token, kept), undo=LiveSandbox.give_up)

    async def _revive(self, identity: str, token: str, kept: Kept) -> LiveSandbox:
        recent = self.recent.take(kept.checkpoint)
        if recent is not None:
            try:
                fill = partial(keeping.unpack_files, recent.files)
                return await self._thawed(identity, token, kept, fill, recent.image)
            finally:
                # A file of gigabytes takes a while to delete, and somebody waits.
                self._chores.begin_later(in_thread(recent.discard))
        image = self._images / secrets.token_hex(8)
        try:
            fill = partial(keeping.fetch, self._store, kept, image)
            return await self._thawed(identity, token, kept, fill, image)
        finally:
            self._chores.begin_later(in_thread(discard_image, image))

    async def copy(self, identity: str, token: str, kept: Kept, frozen: Frozen) -> LiveSandbox:
        """The same out of a moment that stays: a fork runs from the local image."""
        fill = partial(keeping.unpack_files, frozen.files)
        copying = self._thawed(identity, token, kept, fill, frozen.image)
        return await whole(copying, undo=LiveSandbox.give_up)

    async def _prepared(self, kept: Kept, limits: Limits, fill: Fill, image: Path) -> Body | None:
        """It in a box that stood ready, if there is one that fits and serves."""
        root, network = self._catalogue.find(kept.request.image), kept.request.network
        ready = self.pool.take(
            lambda each: each.fits(root, limits, network=network, layer=kept.layer)
        )
        if ready is None:
            return None
        try:
            return await ready.restore(limits, fill, image)
        except BaseException as error:
            self._chores.begin(ready.clear())
            if not isinstance(error, HoldfastError):
                raise
            # Nothing of it runs any more. If it was the checkpoint's fault, that is told anyway.
            log.warning("it is restored without what was prepared: %s", error)
            return None

    async def _thawed(
        self, identity: str, token: str, kept: Kept, fill: Fill, image: Path
    ) -> LiveSandbox:
        request = kept.request
        limits = self._limits.capped(request.limits)
        exact = self._workshop.engine.capabilities.exact_checkpoint
        body = await self._prepared(kept, limits, fill, image)
        if body is None:
            body = await self._workshop.make(
                self._catalogue.find(request.image),
                limits,
                network=request.network,
                fill=fill,
                image=image if exact else None,
            )
        sandbox = LiveSandbox(identity, token, request, body, limits, kept.epoch)
        sandbox.session, sandbox.holder = kept.session, kept.tenant
        try:
            if exact:
                for each in kept.executions:
                    sandbox.adopt(Execution.revived(each, body.line))
                await body.line.resume(kept.epoch, secrets.token_hex(16), kept.running)
        except BaseException:
            await sandbox.give_up()
            raise
        return sandbox
