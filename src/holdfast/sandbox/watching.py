"""Watching live sandboxes: who was silent for too long, and who is wanted by another server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from holdfast.model.errors import HoldfastError
from holdfast.sandbox import handing
from holdfast.sandbox.live import LiveSandbox
from holdfast.sandbox.whole import in_thread
from holdfast.store import Store

IDLE_LOOK, WANTED_LOOK = 0.25, 2.0
Act = Callable[[LiveSandbox], None]


async def idle(live: Mapping[str, LiveSandbox], act: Act) -> None:
    """Call `act` for each whose idle time is over, once; until cancelled."""
    while True:
        await asyncio.sleep(IDLE_LOOK)
        now = time.monotonic()
        for sandbox in list(live.values()):
            if sandbox.unattended and sandbox.executing:
                sandbox.touch()
                continue
            silent = now - sandbox.touched
            if silent > sandbox.request.idle_timeout and not sandbox.work.locked():
                sandbox.touch()  # one at a time; a failed checkpoint is tried again later
                act(sandbox)


async def wanted(live: Mapping[str, LiveSandbox], store: Store, act: Act) -> None:
    """Call `act` for each that another server has left word for in the store: the way for servers
    that cannot reach each other. Until cancelled."""

    def look(names: list[str]) -> list[str]:
        try:
            return [name for name in names if handing.wanted(store, name) is not None]
        except (HoldfastError, OSError):
            return []  # the store cannot be read now; the lease sees to the rest

    while True:
        await asyncio.sleep(WANTED_LOOK)
        ours = [name for name, each in live.items() if each.request.enable_sandbox_handoff]
        for name in await in_thread(look, ours) if ours else ():
            sandbox = live.get(name)
            if sandbox is not None and not sandbox.work.locked():
                act(sandbox)
