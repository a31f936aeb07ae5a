"""A restore, a rollback, a fork or a resume that fails at any of its steps changes nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.session import failing

from holdfast.model import fault_points
from holdfast.model.errors import CaptureFailed, HoldfastError
from holdfast.session import Session
from holdfast.session.member import SessionMember
from holdfast.session.worker.pieces import PIECES
from holdfast.store import Store, open_store

GONE = "import sys\nsys.path.insert(0, {0!r})\nimport gone\nclass Lost(gone.Base): pass"
OFTEN = 5  # of so many steps one is tried in the ordinary run, with what takes long


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
async def session(store: Store, tmp_path: Path) -> AsyncIterator[Session]:
    """A session that has a definition which could not be made again."""
    (tmp_path / "gone.py").write_text("class Base: pass")
    async with Session("work", store=store, env={"MPLBACKEND": "agg"}) as first:
        await first.execute(GONE.format(str(tmp_path)), check=True)
        await first.checkpoint()
    (tmp_path / "gone.py").unlink()
    again = await Session.resume("work", store=store, env={"MPLBACKEND": "agg"})
    async with again:
        assert again.report is not None
        assert again.report["Lost"].outcome == "placeholder"
        await again.execute(failing.SETUP, check=True)
        yield again


@pytest.fixture(autouse=True)
def unwatched() -> Any:
    yield
    fault_points.listen_everywhere(None)


async def change(session: Session, folder: Path, n: int) -> None:
    """Change everything that a restore sets back."""
    inner = folder / f"folder{n}"
    inner.mkdir(exist_ok=True)
    await session.execute(failing.CHANGES.format(n=n, folder=str(inner)), check=True)


class Ready:
    """A session with a checkpoint, changed since, and what is to stay as it is."""

    def __init__(self, session: Session, store: Store, folder: Path) -> None:
        self.session = session
        self.store = store
        self.folder = folder
        self.told = folder / "told"
        os.mkfifo(self.told)

    async def begin(self) -> list[str]:
        """The steps of a restore that succeeds; then the session is another one again."""
        await change(self.session, self.folder, 1)
        self.first = await self.session.checkpoint("first")
        await change(self.session, self.folder, 2)
        await self.session.execute(failing.watch(0, "count"), check=True)
        await self.session.restore(self.first)
        seen = await failing.steps_seen(self.session)
        asked = "[kept.n, shared, variable.get(), made.n, plt.get_fignums(), random.random()]"
        self.restored = (await self.session.execute(asked, check=True)).value
        self.leases = failing.files(self.folder / "store" / "leases")
        await change(self.session, self.folder, 2)
        await self.session.checkpoint("second")
        await self.session.execute(failing.watch(1, "error"), check=True)
        with pytest.raises(HoldfastError):  # the store opens what it keeps open
            await self.session.restore(self.first)
        await self.settle()
        return seen

    async def settle(self) -> None:
        """Remember what there is now."""
        self.before = await failing.look(self.session)
        self.outside = failing.host(self.session, self.store)
        self.held = await self.holds()

    async def holds(self) -> tuple[list[str], list[str], list[int]]:
        held = (await self.session.execute(failing._HELD, check=True)).value
        pid = self.session.pid
        assert pid is not None
        return held, failing.open_files(), await asyncio.to_thread(failing.children, pid)

    async def check(self, what: str) -> None:
        """All is as it was."""
        after = await failing.look(self.session)
        for piece, state in self.before.items():
            assert after[piece] == state, f"{piece}, after {what}"
        assert failing.host(self.session, self.store) == self.outside, what
        held = await self.holds()
        assert held == self.held, what


@pytest.fixture
async def ready(session: Session, store: Store, tmp_path: Path) -> Ready:
    return Ready(session, store, tmp_path)


def some(seen: list[str], often: int) -> list[int]:
    """The numbers of steps to try: each kind of step, and every so many of all."""
    first = {name: number for number, name in reversed([*enumerate(seen, 1)])}
    return sorted({*first.values(), *range(1, len(seen) + 1, often)})


async def fail(ready: Ready, number: int, name: str, how: str) -> None:
    """A restore whose step of this number fails in the worker, in this way."""
    what, session = f"{how} at step {number}, {name}", ready.session
    way = {"timeout": "sleep", "cancel": "hang"}.get(how, how)
    await session.execute(failing.watch(number, way, ready.told), check=True)
    if how == "cancel":
        task = asyncio.create_task(session.restore(ready.first))
        await asyncio.to_thread(ready.told.read_bytes)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    elif how == "timeout":
        with pytest.raises(CaptureFailed, match="took longer"):
            await session.restore(ready.first, timeout=0.1)
    else:
        with pytest.raises(HoldfastError, match=r"step failed|No space left"):
            await session.restore(ready.first)
    await ready.check(what)


async def test_every_piece_has_a_probe(ready: Ready) -> None:
    await ready.begin()
    assert ready.before.keys() == {piece.name for piece in PIECES}
    assert ready.before["definitions"][2]  # something could not be made, and is known


async def test_restore_failing_in_worker_undoes_all(ready: Ready) -> None:
    seen = await ready.begin()
    assert len(set(seen)) > 6
    for number in some(seen, 2):
        await fail(ready, number, seen[number - 1], "full disk")
    for number in some(seen, 4 * OFTEN):
        await fail(ready, number, seen[number - 1], "cancel")
    for number in some(seen, 40 * OFTEN)[::3]:
        await fail(ready, number, seen[number - 1], "timeout")


async def test_entering_is_not_cut_in_the_middle(ready: Ready) -> None:
    """A bundle that is cancelled while the worker restores leaves the session as it was."""
    seen = await ready.begin()
    for number in some(seen, 4 * OFTEN)[::3]:
        await ready.session.execute(failing.watch(number, "hang", ready.told), check=True)
        task = asyncio.create_task(entered(ready.session))
        await asyncio.to_thread(ready.told.read_bytes)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ready.check(f"cancelled at step {number}, {seen[number - 1]}")


async def kill(ready: Ready, number: int, name: str) -> None:
    """A restore whose worker is killed at this step: it is made in a new worker, as a whole."""
    session, what = ready.session, f"killed at step {number}, {name}"
    await session.execute(failing.watch(number, "kill"), check=True)
    old = session.pid
    await session.restore(ready.first)
    assert session.pid != old, what
    seen = "[kept.n, shared, variable.get(), made.n, plt.get_fignums(), random.random()]"
    assert (await session.execute(seen, check=True)).value == ready.restored, what
    head = ready.store.head(session.subject)
    assert head is not None
    assert head.id == ready.first.id, what
    assert failing.files(ready.folder / "store" / "leases") == ready.leases, what


async def test_worker_killed_in_restore_restores_whole(ready: Ready) -> None:
    seen = await ready.begin()
    for number in some(seen, 4 * OFTEN)[::3]:
        await kill(ready, number, seen[number - 1])


@pytest.mark.soak
async def test_worker_killed_at_each_step(ready: Ready) -> None:
    seen = await ready.begin()
    for number, name in enumerate(seen, 1):
        await kill(ready, number, name)


@pytest.mark.soak
@pytest.mark.parametrize("how", ["error", "full disk", "timeout", "cancel"])
async def test_restore_failing_at_each_step(ready: Ready, how: str) -> None:
    seen = await ready.begin()
    for number, name in enumerate(seen, 1):
        await fail(ready, number, name, how)


async def test_new_definition_is_not_a_lost_one(session: Session, store: Store) -> None:
    """One that could not be made keeps its label; a new one must not become it."""
    await session.execute("class New: at = 1\nnew = New()", check=True)
    made = await session.checkpoint()
    await session.restore(made)
    assert (await session.execute("[New.at, type(new) is New]", check=True)).value == [1, True]


async def test_name_is_owned_before_it_is_checked(store: Store) -> None:
    owners = []
    fault_points.listen_everywhere(lambda name: owners.append((name, store.owner("session/new"))))
    async with Session("new", store=store):
        fault_points.listen_everywhere(None)
    ((name, owner),) = owners
    assert name == "the name is free"
    assert owner is not None


Operation = Callable[[Session], Awaitable[Any]]


async def dead(session: Session) -> None:
    """End the worker, and wait until its session has let go of the name."""
    pid = session.pid
    assert pid is not None
    worker = session._driver.worker()
    os.kill(pid, signal.SIGKILL)
    await worker.ended()
    assert session._keeper._resting is not None
    await session._keeper._resting


async def forked(session: Session) -> None:
    made = await session.fork("other")
    await made.shutdown()
    session.store.delete(*session.store.list("session/other"))


async def entered(session: Session) -> None:
    """As a bundle does it, which moves the heads itself."""
    member = SessionMember(session)
    (first,) = [each for each in await session.list() if each.reason == "first"]
    await member.pause()
    try:
        await member.enter(first, False)
    finally:
        await member.resume()


async def resumed(session: Session) -> None:
    made = await Session.resume("apart", store=session.store)
    await made.shutdown()


class Failing:
    """Makes one step of the host fail, and counts them."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.seen: list[str] = []
        self._at = at
        self._act = act

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if len(self.seen) == self._at:
            self._act()


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def attempt(operation: Operation, session: Session, at: int, how: str) -> list[str]:
    """Run it with a step of the host that fails in this way; gives the steps it came to."""
    loop, task = asyncio.get_running_loop(), None
    act = full if how == "full disk" else lambda: loop.call_soon_threadsafe(task.cancel)
    failing_step = Failing(at, act)
    fault_points.listen_everywhere(failing_step)
    try:
        task = asyncio.ensure_future(operation(session))
        if at:
            with pytest.raises((OSError, HoldfastError, asyncio.CancelledError)):
                await task
        else:
            await task
    finally:
        fault_points.listen_everywhere(None)
    return failing_step.seen


@pytest.mark.parametrize("how", ["full disk", "cancel"])
@pytest.mark.parametrize("what", ["restore", "rollback", "fork", "resume", "enter"])
async def test_operation_failing_in_host_undoes_all(ready: Ready, what: str, how: str) -> None:
    await ready.begin()
    async with Session("apart", store=ready.store) as apart:
        await apart.execute("x = 1", check=True)
        await apart.checkpoint()
    operations: dict[str, Operation] = {
        "restore": lambda session: session.restore(ready.first),
        "rollback": lambda session: session.rollback(ready.first),
        "fork": forked,
        "resume": resumed,
        "enter": entered,
    }
    operation = operations[what]
    seen = await attempt(operation, ready.session, 0, "")
    await change(ready.session, ready.folder, 2)
    await ready.session.checkpoint("third")
    await ready.settle()
    assert seen
    for number, name in enumerate(seen, 1):
        await attempt(operation, ready.session, number, how)
        await ready.check(f"{how} at step {number}, {name}, of a {what}")


@pytest.mark.parametrize("how", ["full disk", "cancel"])
@pytest.mark.parametrize("what", ["restore", "rollback"])
async def test_failed_restart_leaves_no_empty_worker(store: Store, what: str, how: str) -> None:
    async with Session("work", store=store) as session:
        await session.execute("x = 1", check=True)
        first = await session.checkpoint()
        await session.execute("x = 2", check=True)
        await session.checkpoint()
        operation: Operation = lambda session: getattr(session, what)(first)  # noqa: E731
        await dead(session)
        seen = await attempt(operation, session, 0, "")
        for number, name in enumerate(seen, 1):
            await dead(session)
            before = failing.host(session, store)
            await attempt(operation, session, number, how)
            assert failing.host(session, store) == before, f"{how} at step {number}, {name}"
            assert (await session.execute("x")).error is not None  # the death is told
            assert (await session.execute("x", check=True)).value == 1
