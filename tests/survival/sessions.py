"""Sessions whose worker is another process at every cell.

Before each cell of a live session that has run something, all of it is captured into a store of its
own, the worker is ended, and a new one is given the capture. The session's own store, head and
lineage know nothing of it. Where the capture says that something is left out, or cannot be made,
nothing was promised: the old worker goes on.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from tests.survival.count import Count

from holdfast.model.errors import CaptureFailed
from holdfast.model.secrets import Rule
from holdfast.protocol.session_messages import RestoredMessage
from holdfast.session import checkpoints
from holdfast.session.arriving import Coming
from holdfast.session.driver import Driver
from holdfast.session.execution import Execution
from holdfast.session.keeper import Keeper
from holdfast.session.process import WorkerProcess
from holdfast.store import Store, open_store

_ALL = Rule.of(True)
_TIMEOUT = 30.0  # seconds for a capture
_SETTLING = 5.0  # seconds for checkpoints that are on their way


class Crossings:
    """Replaces the workers of all sessions of this process, once `begin` was called."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._keepers: WeakKeyDictionary[Driver, Keeper] = WeakKeyDictionary()
        self._used: WeakKeyDictionary[Driver, WorkerProcess] = WeakKeyDictionary()
        # What a worker maps is read from here.
        self._stores: WeakKeyDictionary[Driver, Store] = WeakKeyDictionary()

    def begin(self) -> None:
        """From now on, for as long as the process lives."""
        make, living, restore = Keeper.__init__, Driver._living, Driver.restore

        def made(keeper: Keeper, *given: Any) -> None:
            make(keeper, *given)
            self._keepers[keeper._driver] = keeper

        async def lived(driver: Driver, execution: Execution) -> WorkerProcess | None:
            await self._cross(driver)
            worker = await living(driver, execution)
            if worker is not None:
                self._used[driver] = worker
            return worker

        async def restored(driver: Driver, *given: Any) -> RestoredMessage | None:
            back = await restore(driver, *given)
            if back is not None and driver._worker is not None:
                self._used[driver] = driver._worker
            return back

        for where, name, call in (
            (Keeper, "__init__", made),
            (Driver, "_living", lived),
            (Driver, "restore", restored),
        ):
            setattr(where, name, call)

    async def _cross(self, driver: Driver) -> None:
        """With the driver's lock held: a checkpoint, a new process and a restore."""
        keeper, old = self._keepers[driver], driver._worker
        if not driver.alive or driver.closing or driver.closed:
            return
        if old is None or self._used.get(driver) is not old:
            return  # it has run nothing yet
        try:
            await asyncio.wait_for(keeper.saving.settled(), _SETTLING)
        except TimeoutError:
            self._count.left("a checkpoint is on its way, and a test keeps it there")
            return
        told = driver._told
        try:
            captured = await driver.capture(
                "survival", None, True, None, None, _ALL, timeout=_TIMEOUT
            )
            store = open_store("memory://")
            made = await asyncio.to_thread(_save, store, keeper, captured)
        except CaptureFailed as error:
            driver._told = told  # a worker that died meanwhile is still to be told of
            self._count.left(str(error))
            return
        if not made.report.complete:
            lost = [item for item in made.report if item.outcome not in ("exact", "rebuilt")]
            self._count.left(f"{lost[0].name}: {lost[0].reason}")
            return
        new = await driver.launch()
        if not old.alive or driver.closing or driver.closed or driver._worker is not old:
            new.kill()
            await new.ended()
            return
        old.on_end = lambda: None
        old.kill()
        await old.ended()
        written = driver._early.take()
        await driver.start(new)
        for stream, text in written:
            driver._early.add(stream, text)
        stored = await asyncio.to_thread(checkpoints.read, store, made.checkpoint, True)
        back = await driver.restore(made.id, stored, keeper._settings.given(None))
        if back is None:
            raise CaptureFailed(f"the new worker ended while it restored: {new.how_it_ended}")
        self._stores[driver] = store
        keeper._history._base = 0  # the next checkpoint of the session brings everything
        keeper._history._unverified = stored.memory
        self._count.crossed()


def _save(store: Store, keeper: Keeper, captured: Coming) -> checkpoints.SessionCheckpoint:
    whole = captured.all()
    try:
        return checkpoints.write(
            store,
            keeper.subject,
            whole,
            parents=(None,),
            reason="survival",
            stage=None,
            on_disk=False,
        )
    finally:
        whole.release()
