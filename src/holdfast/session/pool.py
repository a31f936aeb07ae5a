"""Sessions that begin at once: workers are forked from a template before they are asked for.

A worker serves one session and is never used again, so nothing of one session reaches the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, Unpack

from holdfast.model.errors import (
    BadInput,
    Conflict,
    HoldfastError,
    UsageError,
    from_os_error,
)
from holdfast.session import checks
from holdfast.session.process import WorkerProcess
from holdfast.session.session import Session
from holdfast.session.settings import Options, Settings
from holdfast.session.template import Template
from holdfast.session.workers import Greet
from holdfast.store import Store

_PLACES = ("python", "cwd", "env")  # options of the template, the same for all its workers


class SessionPool:
    """Gives out sessions whose workers have run the warm-up already.

    `warmup` is code: imports above all, but what it defines is there in every session, too.
    """

    def __init__(
        self,
        min_idle: int = 1,
        max_sessions: int | None = None,
        warmup: str = "",
        *,
        store: Store | str | None = None,
        **options: Unpack[Options],
    ) -> None:
        """The options are those of `Session`, for every session of the pool. Raises BadInput."""
        self.min_idle = checks.count("min_idle", min_idle, least=0)
        self.max_sessions = (
            None if max_sessions is None else checks.count("max_sessions", max_sessions, least=1)
        )
        self._warmup = checks.text("warmup", warmup)
        self._store = store
        self._options = options
        self._launch = Settings.of(options).launch
        self._template: Template | None = None
        self._starting = asyncio.Lock()
        self._idle: deque[WorkerProcess] = deque()
        self._in_use: set[Session] = set()
        self._free = asyncio.Condition()
        self._promised = 0  # places that a session in the making will take
        self._refilling: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        state = "shut down" if self._closed else f"{self.idle} idle, {self.in_use} in use"
        return f"<SessionPool {state}>"

    @property
    def idle(self) -> int:
        """Workers that wait for a session."""
        return sum(self._waits(worker) for worker in self._idle)

    @property
    def in_use(self) -> int:
        """Sessions that were given out and not shut down."""
        return len(self._in_use)

    # -- life ----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Run the warm-up and make the first workers. `acquire` does it, too, when it has to.

        Raises BadInput when the warm-up fails.
        """
        self._check_open()
        await self._warm()
        self._refill()
        if self._refilling is not None:
            await asyncio.shield(self._refilling)
        return self

    async def shutdown(self) -> None:
        """End all sessions of the pool, and what waits to become one. Twice is fine."""
        self._closed = True
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.wait({self._refilling})
        async with self._free:
            self._free.notify_all()
        try:
            done = await asyncio.gather(
                *(session.shutdown() for session in list(self._in_use)), return_exceptions=True
            )
        finally:
            for worker in self._idle:
                worker.kill()
            for worker in self._idle:
                await worker.ended()
            self._idle.clear()
            if self._template is not None:
                await self._template.close()
        for failure in done:
            if failure is not None:
                raise failure

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.shutdown()
        except HoldfastError as failure:
            if error is None:
                raise
            error.add_note(f"the pool ended with another error: {failure}")

    # -- sessions ------------------------------------------------------------------------

    async def acquire(
        self,
        name: str | None = None,
        *,
        fresh: bool = False,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Session:
        """A session that is started; its `shutdown` makes room for another one.

        With `max_sessions` in use it waits for one to end; after `timeout` seconds it raises
        Conflict. Raises Conflict also as `Session.start` does.
        """
        return await self._give(
            name, timeout, checks.flag("fresh", fresh), options, lambda session: session.start()
        )

    async def resume(
        self,
        name: str,
        *,
        trust: bool = False,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Session:
        """As `Session.resume`, in a worker of the pool."""
        return await self._give(
            checks.text("the name of a session", name),
            timeout,
            False,
            options,
            lambda session: session._begin_at_head(trust),
        )

    async def release(self, session: Session) -> None:
        """Shut a session down; another one may then have its place."""
        await session.shutdown()

    @asynccontextmanager
    async def session(
        self, name: str | None = None, **options: Unpack[Options]
    ) -> AsyncIterator[Session]:
        """`async with pool.session() as session:` gives one that ends with the block."""
        acquired = await self.acquire(name, **options)
        async with acquired:
            yield acquired

    async def _give(
        self,
        name: str | None,
        timeout: float | None,
        fresh: bool,
        options: Options,
        begin: Callable[[Session], Awaitable[Session]],
    ) -> Session:
        self._check_open()
        places = [place for place in _PLACES if place in options]
        if places:
            raise BadInput(
                f"{', '.join(places)} is the same for all sessions of a pool",
                hint="give it to SessionPool",
            )
        settings = Settings.of(Options(**{**self._options, **options}))
        await self._take_place(checks.seconds("timeout", timeout))
        try:
            session = Session._with(Supply(self), name, self._store, fresh, settings, self._ended)
            await begin(session)
        except BaseException:
            await self._give_place_back()
            raise
        self._promised -= 1
        self._in_use.add(session)
        if self._closed:  # while this was starting
            await session.shutdown()
            self._check_open()
        return session

    async def _take_place(self, timeout: float | None) -> None:
        def free() -> bool:
            most = self.max_sessions
            return self._closed or most is None or self.in_use + self._promised < most

        async with self._free:
            try:
                await asyncio.wait_for(self._free.wait_for(free), timeout)
            except TimeoutError:
                raise Conflict(
                    f"all {self.max_sessions} sessions of the pool are in use",
                    hint="shut one down, or give the pool a larger max_sessions",
                ) from None
            self._check_open()
            self._promised += 1

    async def _give_place_back(self) -> None:
        self._promised -= 1  # at once: what follows may be cancelled
        async with self._free:
            self._free.notify()

    def _ended(self, session: Session) -> None:
        self._in_use.discard(session)

        async def tell() -> None:
            async with self._free:
                self._free.notify()
            self._refill()

        if not self._closed:
            self._telling = asyncio.create_task(tell())

    # -- workers -------------------------------------------------------------------------

    async def worker(self) -> WorkerProcess:
        """A worker for a session of this pool: one that waits, or a new fork."""
        try:
            while self._idle:
                worker = self._idle.popleft()
                if self._waits(worker):
                    return worker
            return await (await self._warm()).fork()
        finally:
            self._refill()

    async def _warm(self) -> Template:
        async with self._starting:
            self._check_open()
            if self._template is None or not self._template.alive:
                try:
                    template = Template(self._launch, self._warmup)
                    await template.start()
                except OSError as error:
                    raise from_os_error(error, "starting the template of a pool") from error
                self._template = template
                self._idle.clear()  # what the old one forked
            return self._template

    def _waits(self, worker: WorkerProcess) -> bool:
        """Whether a session can have it: one whose template has ended is about to end, too."""
        return worker.alive and self._template is not None and self._template.alive

    def _refill(self) -> None:
        if not self._closed and (self._refilling is None or self._refilling.done()):
            self._refilling = asyncio.create_task(self._fill())

    async def _fill(self) -> None:
        try:
            while not self._closed and self.idle < self._wanted:
                worker = await (await self._warm()).fork()
                self._idle.append(worker)
        except HoldfastError:
            return  # whoever needs a worker tries again, and gets the error

    @property
    def _wanted(self) -> int:
        if self.max_sessions is None:
            return self.min_idle
        return min(self.min_idle, self.max_sessions - self.in_use)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the pool is shut down", hint="make a new SessionPool")


class Supply:
    """The pool's workers, as a session sees them."""

    def __init__(self, pool: SessionPool) -> None:
        self._pool = pool

    async def start(self, greet: Greet | None = None) -> WorkerProcess:
        worker = await self._pool.worker()
        if greet is not None:
            greet(worker)
        return worker
