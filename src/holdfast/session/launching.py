"""A worker on its way into a session: what it will need is imported while that is still read."""

from __future__ import annotations

import asyncio

from holdfast.protocol.session_messages import ImportMessage
from holdfast.session.driver import Driver
from holdfast.session.process import WorkerProcess
from holdfast.session.workers import end


class Launching:
    """A new worker takes as long to start, and to import what it needs, as a checkpoint takes to be
    found and read, so it is begun first. It runs nothing of the user's before somebody takes it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._needed: asyncio.Future[tuple[str, ...]] = self._loop.create_future()
        self._task: asyncio.Task[WorkerProcess] | None = None
        self._is_taken = False

    @property
    def begun(self) -> bool:
        return self._task is not None

    def begin(self) -> None:
        """Start a worker. Raises UsageError when the session was shut down."""
        self._driver.check_open()
        self._task = asyncio.create_task(self._driver.launch(self._greet))

    def tell(self, modules: tuple[str, ...]) -> None:
        """It will need these; told in any thread."""
        self._loop.call_soon_threadsafe(self._settle, modules)

    async def taken(self) -> WorkerProcess:
        """The worker, which is the caller's then. Raises HoldfastError."""
        if self._task is None:
            self.begin()
        assert self._task is not None
        worker = await self._task
        self._is_taken = True
        return worker

    async def give_up(self) -> None:
        """There is nothing to put into the worker after all, if nobody has taken it."""
        if self._task is None or self._is_taken:
            return
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled() and self._task.exception() is None:
            await end(self._task.result())

    def _greet(self, worker: WorkerProcess) -> None:
        """It is told what to import as soon as that is known, though it may still be starting."""
        self._needed.add_done_callback(
            lambda needed: worker.send(ImportMessage(modules=needed.result()))
        )

    def _settle(self, modules: tuple[str, ...]) -> None:
        if not self._needed.done():
            self._needed.set_result(modules)
