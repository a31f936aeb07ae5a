"""Owning a sandbox: the lease of its subject, told step by step to whoever watches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.protocol.sandbox_flow import Fact
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.sandbox import keeping
from holdfast.store import Store
from holdfast.store.leases import Lease, OnLost

Tell = Callable[[Fact], Awaitable[None]]


async def own(
    store: Store,
    identity: str,
    request: CreateRequest,
    tell: Tell,
    lost: OnLost,
    *,
    url: str | None,
    wait: float = 0.0,
) -> Lease | None:
    """The right to advance a sandbox's subject; one that is never kept has no subject.
    Raises Owned when another server runs it for longer than `wait` seconds. `lost` is called in
    a thread of the lease."""
    if not request.enable_checkpoint:
        return None
    if request.enable_sandbox_handoff:
        await tell(Fact.LOCK_SOUGHT)
    lease = await asyncio.to_thread(store.lease, keeping.subject_of(identity), url=url, wait=wait)
    lease.keep(lost)
    if request.enable_sandbox_handoff:
        await tell(Fact.LOCK_TAKEN)
    return lease


async def release(lease: Lease | None) -> None:
    if lease is not None:
        await asyncio.to_thread(lease.release)


async def silence(fact: Fact) -> None:
    """Nobody is there to be told."""
