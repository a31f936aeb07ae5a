"""Owning a sandbox: the lease of its subject, told step by step to whoever watches."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from holdfast.model.errors import HoldfastError
from holdfast.protocol.sandbox_flow import Fact
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.sandbox import keeping
from holdfast.sandbox.whole import in_thread, in_thread_or_undone
from holdfast.store import Store
from holdfast.store.leases import Lease, OnLost

log = logging.getLogger("holdfast.sandbox")
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
    a thread of the lease. Whatever it raises, nothing is owned."""
    if not request.enable_checkpoint:
        return None
    if request.enable_sandbox_handoff:
        await tell(Fact.LOCK_SOUGHT)
    subject = keeping.subject_of(identity)
    lease = await in_thread_or_undone(Lease.release, store.lease, subject, url=url, wait=wait)
    try:
        lease.keep(lost)
        if request.enable_sandbox_handoff:
            await tell(Fact.LOCK_TAKEN)
    except BaseException:
        await give_back(lease)
        raise
    return lease


async def release(lease: Lease | None) -> None:
    if lease is not None:
        await in_thread(lease.release)


async def give_back(lease: Lease | None) -> bool:
    """Release it in a situation that nobody is to be stopped by: whether that was noted. If not,
    the lease runs out by itself."""
    trouble: Exception | None = None
    for _ in range(2):  # once more, for a release that did not even begin
        try:
            await release(lease)
        except (HoldfastError, OSError) as error:
            trouble = error
        else:
            if trouble is not None and lease is not None:
                log.warning("the lease of %s may have to run out: %s", lease.subject, trouble)
            return trouble is None
    log.warning("a lease has to run out: %s", trouble)
    return False


async def silence(fact: Fact) -> None:
    """Nobody is there to be told."""
