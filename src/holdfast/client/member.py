"""A sandbox on a server as a member of a bundle that is made here: held still from a distance."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from holdfast.client.link import Link, Unreachable, address
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import HoldfastError, NotFound, UsageError, all_kinds
from holdfast.model.subject import Subject
from holdfast.store import Store
from holdfast.store.leases import Borrowed

log = logging.getLogger("holdfast.client")
_GONE = "the server let go of the sandbox"


class RemoteMember:
    """Binds a sandbox by its id. The connection is the hold: when it ends, the sandbox goes on."""

    rank = -1

    def __init__(self, url: str, identity: str, token: str | None) -> None:
        self.subject = Subject("sandbox", identity)
        self.store: Store | None = None  # its server's, which is that of the other members
        self.lease: Borrowed | None = None
        self._url = url
        self._token = token
        self._link: Link | None = None

    def settle(self, store: Store) -> None:
        """The other members are in this store, so it must be its server's, too."""
        self.store = store

    async def pause(self) -> None:
        where = address(self._url, f"/v1/sandboxes/{self.subject.name}/hold")
        self._link = await Link.open(where, self._token)
        try:
            told = await self._answer()
        except BaseException:
            await self._close()
            raise
        if told["token"] is not None:
            self.lease = Borrowed(str(self.subject), int(told["token"]))

    async def capture(self, reason: str, stage: str | None) -> Checkpoint:
        told = await self._do(verb="capture", reason=reason, stage=stage)
        return await asyncio.to_thread(self._made, str(told["checkpoint"]))

    def _made(self, identity: str) -> Checkpoint:
        """What the server has captured, if this is its store. Raises UsageError."""
        if self.store is None:
            raise UsageError(f"the store of {self.subject} is not known")
        try:
            return self.store.resolve(identity)
        except NotFound:
            raise UsageError(
                f"{self.subject} is kept in another store than {self.store.url}",
                hint="use the store that the sandbox's server has (`holdfast serve --store URL`)",
            ) from None

    async def enter(self, checkpoint: Checkpoint, trust: bool) -> None:
        await self._do(verb="enter", checkpoint=checkpoint.id)

    async def check(self) -> None:
        await self._do(verb="check")

    async def run(self, code: str) -> None:
        await self._do(verb="run", code=code)

    async def arrive(self, checkpoint: Checkpoint) -> None:
        await self._do(verb="arrive", checkpoint=checkpoint.id)

    async def resume(self) -> None:
        try:
            if self._link is not None:
                await self._do(verb="resume")
        except Unreachable as error:
            log.warning("%s was let go before it was told to go on: %s", self.subject, error)
        finally:
            await self._close()

    async def _do(self, **order: object) -> dict[str, Any]:
        if self._link is None:
            raise UsageError(f"{self.subject} is not held")
        await self._link.send(order)
        return await self._answer()

    async def _answer(self) -> dict[str, Any]:
        told = await self._link.receive() if self._link is not None else None
        if told is None:
            raise Unreachable(_GONE, hint="it goes on as it was last frozen, or as it ran")
        error = told.get("error")
        if isinstance(error, dict):
            made = all_kinds().get(str(error.get("kind")), HoldfastError)
            raise made(str(error.get("message")), hint=error.get("hint"))
        return told

    async def _close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()
