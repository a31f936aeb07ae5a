"""Admission: how many sandboxes there may be, for whom, and whose turn it is to have one made.

At a limit there is an answer. Room is asked for at once, and whoever gets none is told so; making
a sandbox takes a turn, for which one waits in line for a while, every token in a line of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from holdfast.model.errors import Busy
from holdfast.sandbox.allowance import EVERYTHING, Allowance


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whoever holds one of the server's tokens, and what that allows."""

    name: str
    sandboxes: int | None = None  # at once; None: as many as the server has room for
    allowance: Allowance = EVERYTHING
    shared: tuple[str, ...] = ()  # the owner's snapshots and templates that it may begin from


OWNER = Tenant("")  # who holds the server's own token


class Gate:
    """So many turns at once. Who waits is let in one of each line after the other."""

    def __init__(self, turns: int, waiting: int, seconds: float) -> None:
        self._free = turns
        self._most_waiting = waiting
        self._seconds = seconds
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        return sum(len(line) for line in self._lines.values())

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Raises Busy when the line is too long, or does not move for too long."""
        await self._enter(name)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, name: str) -> None:
        if self._free > 0:
            self._free -= 1
            return
        line = self._lines.setdefault(name, deque())
        if len(line) >= self._most_waiting:
            raise Busy(
                f"{len(line)} sandboxes of this token wait to be made", hint="try again later"
            )
        turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except TimeoutError:
            self._withdraw(name, turn)
            raise Busy(
                f"the server made no sandbox for this token within {self._seconds:g} s",
                hint="try again later",
            ) from None
        except BaseException:
            self._withdraw(name, turn)
            raise

    def _withdraw(self, name: str, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            self._leave()  # it came in the same moment: the next one's
            return
        line = self._lines.get(name)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._lines[name]

    def _leave(self) -> None:
        while self._lines:
            name, line = self._lines.popitem(last=False)
            turn = line.popleft()
            if line:
                self._lines[name] = line  # at the end: the others come first
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Admission:
    """Room for sandboxes on one server. `held` gives the tenants of those that live."""

    def __init__(self, most: int, held: Callable[[], Iterable[Tenant]], gate: Gate) -> None:
        self._most = most
        self._held = held
        self._coming: Counter[str] = Counter()
        self.gate = gate
        self.refused = 0

    def check(self, tenant: Tenant, more: int = 1) -> None:
        """Raises Busy when there is no room."""
        held = Counter(each.name for each in self._held()) + self._coming
        if held.total() + more > self._most:
            self._refuse(f"there are {self._most} sandboxes already")
        if tenant.sandboxes is not None and held[tenant.name] + more > tenant.sandboxes:
            self._refuse(f"the quota of this token is {tenant.sandboxes} sandboxes")

    def _refuse(self, why: str) -> None:
        self.refused += 1
        raise Busy(why, hint="end one, then try again")

    @contextmanager
    def room(self, tenant: Tenant, more: int = 1) -> Iterator[None]:
        """Keep room for what is being made. Raises Busy."""
        self.check(tenant, more)
        self._coming[tenant.name] += more
        try:
            yield
        finally:
            self._coming[tenant.name] -= more
