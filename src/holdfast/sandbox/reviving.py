"""Reviving: a live sandbox out of a checkpoint, from this disk where it is still there."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

from holdfast.sandbox import keeping
from holdfast.sandbox.body import Workshop
from holdfast.sandbox.catalogue import Catalogue
from holdfast.sandbox.chores import Chores
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.execution import Execution
from holdfast.sandbox.keeping import Kept
from holdfast.sandbox.live import Frozen, LiveSandbox, discard_image
from holdfast.sandbox.recent import Recent
from holdfast.store import Store

Fill = Callable[[Path], None]


class Reviver:
    """Brings sandboxes back in bodies of one workshop."""

    def __init__(
        self,
        store: Store,
        workshop: Workshop,
        catalogue: Catalogue,
        limits: Limits,
        folder: Path,
        chores: Chores,
    ) -> None:
        self._store = store
        self._workshop = workshop
        self._catalogue = catalogue
        self._limits = limits
        self._images = folder / "images"
        self._chores = chores
        self.recent = Recent(folder / "recent")

    async def revive(self, identity: str, token: str, kept: Kept) -> LiveSandbox:
        """Raises HoldfastError and leaves nothing; the checkpoint stays."""
        recent = self.recent.take(kept.checkpoint)
        if recent is not None:
            try:
                fill = partial(keeping.unpack_files, recent.files)
                return await self._thawed(identity, token, kept, fill, recent.image)
            finally:
                # A file of gigabytes takes a while to delete, and somebody waits.
                self._chores.begin_later(asyncio.to_thread(recent.discard))
        image = self._images / secrets.token_hex(8)
        try:
            fill = partial(keeping.fetch, self._store, kept, image)
            return await self._thawed(identity, token, kept, fill, image)
        finally:
            self._chores.begin_later(asyncio.to_thread(discard_image, image))

    async def copy(self, identity: str, token: str, kept: Kept, frozen: Frozen) -> LiveSandbox:
        """The same out of a moment that stays: a fork runs from the local image."""
        fill = partial(keeping.unpack_files, frozen.files)
        return await self._thawed(identity, token, kept, fill, frozen.image)

    async def _thawed(
        self, identity: str, token: str, kept: Kept, fill: Fill, image: Path
    ) -> LiveSandbox:
        request = kept.request
        limits = self._limits.capped(request.limits)
        root = self._catalogue.find(request.image)
        exact = self._workshop.engine.capabilities.exact_checkpoint
        body = await self._workshop.make(
            root, limits, network=request.network, fill=fill, image=image if exact else None
        )
        sandbox = LiveSandbox(identity, token, request, body, limits, kept.epoch)
        sandbox.session = kept.session
        try:
            if exact:
                for each in kept.executions:
                    sandbox.adopt(Execution.revived(each, body.line))
                await body.line.resume(kept.epoch, secrets.token_hex(16), kept.running)
        except BaseException:
            await body.end()
            self._chores.begin(body.clear())
            raise
        return sandbox
