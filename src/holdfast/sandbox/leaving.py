"""Leaving: every way in which a sandbox stops running here, told step by step to its client."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Conflict, Denied, HoldfastError, NotFound
from holdfast.protocol.sandbox_flow import Fact
from holdfast.sandbox import keeping, owning
from holdfast.sandbox.chores import Chores
from holdfast.sandbox.freezing import Captured, Freezer
from holdfast.sandbox.handing import Plea
from holdfast.sandbox.live import Client, LiveSandbox
from holdfast.sandbox.owning import Tell
from holdfast.sandbox.recent import Recent
from holdfast.sandbox.whole import in_thread, whole

log = logging.getLogger("holdfast.sandbox")
STOP_SECONDS = 120.0  # for a sandbox to be put away when the server stops


class Exits:
    """The doors out of one fleet."""

    def __init__(
        self,
        live: dict[str, LiveSandbox],
        freezer: Freezer,
        recent: Recent,
        chores: Chores,
        counters: dict[str, int],
    ) -> None:
        self._live = live
        self._freezer = freezer
        self._recent = recent
        self._chores = chores
        self._counters = counters

    # -- with a checkpoint

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
        with self._chores.moving():
            return await whole(self._put_away(sandbox, tell, reason, during_execution, force))

    async def _put_away(
        self, sandbox: LiveSandbox, tell: Tell, reason: str, during_execution: bool, force: bool
    ) -> Captured:
        async with sandbox.work:
            if force and not self._freezer.engine.capabilities.during_execution:
                await self._kill_executions(sandbox, tell)
            await self._freezer.ready(sandbox, during_execution or force, force=force)
            began = time.perf_counter()
            frozen, checkpoint = await self._freezer.put_away(sandbox, reason)
            # It is durable: whatever goes wrong from here on, the sandbox goes.
            sandbox.away = True
            try:
                await in_thread(self._recent.keep, checkpoint.id, frozen)
            except Exception:
                log.exception("checkpoint %s is not kept at hand", checkpoint.id)
            pause = (time.perf_counter() - began) * 1000
            await self.delete(sandbox, tell)
            return Captured(checkpoint, pause)

    async def _kill_executions(self, sandbox: LiveSandbox, tell: Tell) -> None:
        told = sandbox.foreground is not None and sandbox.foreground.exit is None
        if told:
            await _tell(tell, Fact.PROCESS_KILLED)
        await sandbox.kill_all()
        if told:
            await sandbox.delivered()
            await _tell(tell, Fact.EXECUTION_ENDED)

    async def hand_over(self, plea: Plea) -> Checkpoint:
        """Put a sandbox away for another server that asks for it. Raises NotFound when it is not
        this one's any more, Denied, Conflict, or why it could not be frozen."""
        sandbox = self._live.get(plea.sandbox_id)
        if sandbox is None or sandbox.lease is None or sandbox.lease.token != plea.lease:
            raise NotFound(f"sandbox {plea.sandbox_id} does not run here")
        if not hmac.compare_digest(plea.token.encode(), sandbox.token.encode()):
            raise Denied("the sandbox token is wrong")
        if not sandbox.request.enable_sandbox_handoff:
            raise Conflict("the sandbox was created without enable_sandbox_handoff")
        # Who asked may have gone on without us, if we were away for long.
        await in_thread(sandbox.lease.renew)
        return await self.give_up(sandbox)

    async def give_up(self, sandbox: LiveSandbox) -> Checkpoint:
        """For another server, which waits for its lease."""
        client = sandbox.client
        await say(client, Fact.HANDOVER_ASKED)
        await say(client, Fact.CHECKPOINT_BEGUN)
        try:
            captured = await self.put_away(
                sandbox, lambda fact: say(client, fact), reason="handover", force=True
            )
        except HoldfastError as error:
            await say(client, Fact.CHECKPOINT_FAILED, error)
            raise
        self._counters["handed_over"] += 1
        await say(client, Fact.CHECKPOINTED)
        return captured.checkpoint

    async def idle(self, sandbox: LiveSandbox) -> None:
        """Nobody has spoken to it for its idle time."""
        client = sandbox.client
        keep = sandbox.request.enable_idle_timeout_auto_checkpoint
        log.info("sandbox %s is idle", sandbox.identity)
        try:
            await say(client, Fact.IDLE)
            if keep:
                await say(client, Fact.CHECKPOINT_BEGUN)
                await self.put_away(
                    sandbox, lambda fact: say(client, fact), reason="idle", force=True
                )
                await say(client, Fact.CHECKPOINTED)
                return
            await whole(self._end(sandbox, lambda fact: say(client, fact)))
            await say(client, Fact.ENDED)
        except HoldfastError as error:
            log.warning("sandbox %s could not be put away: %s", sandbox.identity, error)
            await say(client, Fact.CHECKPOINT_FAILED, error)

    # -- without one

    async def kill(self, sandbox: LiveSandbox, tell: Tell) -> None:
        """End a sandbox for good; its checkpoints stay in the store, but nobody attaches. Raises
        HoldfastError when that cannot be noted; then it goes on."""
        await whole(self._kill(sandbox, tell))

    async def _kill(self, sandbox: LiveSandbox, tell: Tell) -> None:
        async with sandbox.work:
            if sandbox.lease is not None:
                store = self._freezer.store
                await in_thread(keeping.mark_killed, store, sandbox.identity)
            if not sandbox.ended:  # or whoever froze it meanwhile has ended it
                await self.delete(sandbox, tell)

    async def kill_for(self, sandbox: LiveSandbox) -> None:
        """The same for somebody who is not its client: the client is told, step by step."""
        client = sandbox.client
        await say(client, Fact.KILL_BEGUN)
        try:
            await self.kill(sandbox, lambda fact: say(client, fact))
        except HoldfastError as error:
            await say(client, Fact.KILL_FAILED, error)
            raise
        except BaseException:
            trouble = HoldfastError("the server failed", hint="its log says why")
            await say(client, Fact.FAULT, trouble)
            raise
        await say(client, Fact.KILLED)

    async def discard(self, sandbox: LiveSandbox) -> None:
        """End one that nobody was told of, and give its lease back."""
        await whole(self._end(sandbox, owning.silence))

    async def _end(self, sandbox: LiveSandbox, tell: Tell) -> None:
        async with sandbox.work:
            if not sandbox.ended:
                await self.delete(sandbox, tell)

    async def disowned(self, sandbox: LiveSandbox) -> None:
        """Somebody else may run it now, so we must not: stop, and say why."""
        client = sandbox.client
        await say(client, Fact.LEASE_LOST)
        await say(client, Fact.DELETE_BEGUN)
        await self.retire(sandbox)
        await say(client, Fact.DELETED)
        await say(client, Fact.ENDED)

    async def broken(self, sandbox: LiveSandbox, why: str) -> None:
        """Its agent went away, and nobody asked for that."""
        log.warning("sandbox %s broke: %s", sandbox.identity, why)
        self._counters["broken"] += 1
        error = HoldfastError(
            f"the sandbox broke: {why}", hint="it may have used more memory than it is allowed"
        )
        await say(sandbox.client, Fact.FAULT, error)
        await self.retire(sandbox)
        await owning.give_back(sandbox.lease)

    async def stop(self, sandbox: LiveSandbox) -> str | None:
        """The server stops: put away what may be; what went wrong, if anything did."""
        trouble = None
        if sandbox.request.enable_checkpoint and not sandbox.ended:
            leaving = asyncio.ensure_future(
                self.put_away(sandbox, owning.silence, reason="the server stopped", force=True)
            )
            # Not cancelled after that time: it would still not be left halfway.
            await asyncio.wait([leaving], timeout=STOP_SECONDS)
            try:
                if leaving.done():
                    leaving.result()
                else:
                    trouble = f"it was not put away in {STOP_SECONDS:g} s"
            except (HoldfastError, OSError) as error:
                # Unless whoever asked before was still at it, and has put it away.
                trouble = None if sandbox.away else str(error)
        if not sandbox.ended:
            await self.delete(sandbox, owning.silence)
        return trouble and f"sandbox {sandbox.identity}: {trouble}"

    # -- what they all come to

    async def delete(self, sandbox: LiveSandbox, tell: Tell) -> None:
        """Stop running a sandbox and let others own it, step by step for whoever watches. What goes
        wrong with one step keeps no other from being taken."""
        await _tell(tell, Fact.DELETE_BEGUN)
        await self.retire(sandbox)
        if sandbox.request.enable_sandbox_handoff:
            await _tell(tell, Fact.LOCK_RELEASE_BEGUN)
        released = await owning.give_back(sandbox.lease)
        if sandbox.request.enable_sandbox_handoff and released:
            await _tell(tell, Fact.LOCK_RELEASED)
        await _tell(tell, Fact.DELETED)

    async def retire(self, sandbox: LiveSandbox) -> None:
        """Nothing of it runs any more; what it left is cleared away later."""
        if not sandbox.ended:
            self._counters["ended"] += 1
        sandbox.ended = True
        self._live.pop(sandbox.identity, None)
        sandbox.stop_timers()
        for end in (sandbox.body.end, sandbox.unplug):
            try:
                await end()
            except (HoldfastError, OSError):
                # Clearing it away ends it once more.
                log.exception("sandbox %s did not end in good order", sandbox.identity)
        self._chores.begin_later(sandbox.body.clear())


async def say(client: Client | None, fact: Fact, error: HoldfastError | None = None) -> None:
    """Tell whoever is attached, if anybody is."""
    if client is not None:
        await _tell(lambda said: client.tell_of_others(said, error), fact)


async def _tell(tell: Tell, fact: Fact) -> None:
    """A client that cannot be told keeps nobody from what has to be done."""
    try:
        await tell(fact)
    except Exception:
        log.exception("a client could not be told: %s", fact)
