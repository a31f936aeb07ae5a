"""Automatic checkpoints, transactions, and what happens beside a running session."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.session.test_beside import SLOW

from holdfast import sync
from holdfast.model.errors import BadInput, CaptureFailed, HoldfastError, StorageFull
from holdfast.session import CellFailed, Session
from holdfast.session.process import WorkerProcess
from holdfast.session.saving import MOST
from holdfast.store import open_store, retention
from holdfast.testing.waiting import until

# A process with threads is never copied. On a machine that stood still a capture takes long, the
# next one is made in a copy, and cells that end before that has arrived share a checkpoint.
IN_PLACE = (
    "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
)


async def value(session: Session, code: str) -> object:
    result = await session.execute(code)
    assert result.error is None, result.error.traceback
    return result.value


async def reasons(session: Session) -> list[str]:
    return [cp.reason for cp in await session.list()]


async def test_a_checkpoint_after_every_cell(make, store) -> None:
    session = await make("cells", auto_checkpoint="cell")
    for number in range(3):
        await session.execute(f"{'' if number else IN_PLACE}x = {number}")
    await session.execute("x = 9\n1 / 0")  # what a cell did before it failed is done, too
    await session.shutdown()
    assert await reasons(session) == ["cell 4", "cell 3", "cell 2", "cell 1"]
    again = await Session.resume("cells", store=store)
    assert await value(again, "x") == 9
    await again.shutdown()
    assert len(await session.list()) == 4  # a resumed session has its own settings


async def test_gathered_cells_have_a_checkpoint_each(make) -> None:
    session = await make("cells", auto_checkpoint="cell")
    cells = [f"{'' if n else IN_PLACE}x{n} = 1" for n in range(4)]
    await asyncio.gather(*map(session.execute, cells))
    await session.shutdown()
    assert sorted(await reasons(session)) == [f"cell {n}" for n in (1, 2, 3, 4)]


async def test_a_checkpoint_every_so_often(make) -> None:
    session = await make("clock", auto_checkpoint=0.2)
    await asyncio.sleep(0.5)
    assert await session.list() == []  # nothing ran
    await session.execute("x = 1")
    async with asyncio.timeout(60):
        while not await session.list():
            await asyncio.sleep(0.05)
    assert await reasons(session) == ["automatic"]
    await asyncio.sleep(0.5)
    assert await reasons(session) == ["automatic"]  # nothing ran since


async def test_what_is_due_is_saved_at_the_end(make, store) -> None:
    async with Session("last", store=store, auto_checkpoint=1000) as session:
        await session.execute("x = 5")
        await session.checkpoint(reason="by hand")
        await session.execute("x = 6")
    assert await reasons(session) == ["automatic", "by hand"]
    session = await make("endless", auto_checkpoint="cell")
    running = asyncio.create_task(session.execute("while True: pass"))
    await asyncio.sleep(0.2)
    await asyncio.wait_for(session.shutdown(), 20)  # a running cell is not waited for
    assert (await running).error is not None


async def test_retention_holds_for_a_session(make, store) -> None:
    session = await make("kept", auto_checkpoint="cell", keep=retention.Last(3))
    for number in range(25):
        await session.execute(f"{'' if number else IN_PLACE}x = {number}")
    await session.shutdown()
    assert await reasons(session) == ["cell 25", "cell 24", "cell 23"]
    plain = await make("plain")
    for _ in range(12):
        await plain.checkpoint()
    await plain.shutdown()
    assert len(await plain.list()) == 12
    automatic = Session("auto", store=store, auto_checkpoint="cell")
    assert automatic._settings.keep == retention.DEFAULT


async def test_what_stays_in_memory_is_bounded(make) -> None:
    session = await make("memory", keep=retention.Last(2))
    made = [await session.checkpoint(save_to_disk=False) for _ in range(10)]
    await session.restore(made[-1])
    with pytest.raises(HoldfastError):
        await session.restore(made[0])


def full_disk(*args: object, **options: object) -> None:
    raise StorageFull("no room")


async def wait_for_commits(session: Session) -> None:
    async with session._driver.lock:
        await session._keeper.saving.settled()


@pytest.fixture
async def failing(make):
    """A session whose automatic checkpoints cannot be written."""
    session = await make("full", auto_checkpoint="cell")
    session._history.save = full_disk
    return session


async def test_a_failure_beside_the_session_is_raised_by_the_next_call(failing) -> None:
    assert await value(failing, "x = 1\nx") == 1
    await wait_for_commits(failing)
    with pytest.raises(StorageFull, match="no room"):
        await failing.execute("x = 2")
    assert await value(failing, "x") == 1  # once; and that cell did not run
    await wait_for_commits(failing)
    with pytest.raises(StorageFull):
        await failing.restore()
    await failing.execute("x")
    with pytest.raises(StorageFull):
        await failing.flush()
    with pytest.raises(StorageFull):  # tried once more
        await failing.shutdown()


async def test_what_did_not_come_to_disk_is_due_again(make, store) -> None:
    session = await make("again", auto_checkpoint="cell")
    save, session._history.save = session._history.save, full_disk
    await session.execute("x = 1")
    await wait_for_commits(session)
    session._history.save = save
    with pytest.raises(StorageFull):
        await session.flush()
    assert len(await session.list()) == 1  # all the same
    await session.flush()
    assert len(await session.list()) == 1


async def test_what_stays_in_memory_is_saved_at_the_end(make) -> None:
    session = await make("kept", auto_checkpoint=1000)
    await session.execute("x = 1")
    await session.checkpoint(save_to_disk=False)
    await session.shutdown()
    assert await reasons(session) == ["automatic"]


@pytest.mark.parametrize("automatic", ["cell", 1000])
async def test_restore_from_memory_is_saved(make, store, automatic) -> None:
    session = await make("kept", auto_checkpoint=automatic)
    await session.execute("x = 1")
    memory = await session.checkpoint(save_to_disk=False)
    await session.execute("x = 2")
    await session.checkpoint()
    await session.restore(memory)
    if automatic == "cell":  # a crash from here on loses nothing
        await session._keeper.saving.settled()
        assert (await session.show()).checkpoint.reason == "automatic"
    await session.shutdown()
    async with await Session.resume("kept", store=store) as again:
        assert (await again.execute("x")).value == 1


async def test_restore_from_a_file_is_saved(make, store, tmp_path: Path) -> None:
    other = await make("other")
    await other.execute("x = 1")
    await other.checkpoint()
    await other.export(tmp_path / "other.archive")
    session = await make("kept", auto_checkpoint="cell")
    await session.execute("x = 2")
    await session.restore(tmp_path / "other.archive", trust=True)
    await session.shutdown()
    async with await Session.resume("kept", store=store) as again:
        assert (await again.execute("x")).value == 1


async def test_what_somebody_did_not_wait_for_is_saved_at_the_end(make) -> None:
    session = await make("left", auto_checkpoint=1000)
    await session.execute(SLOW)
    await session.checkpoint(reason="by hand")  # in place: only then is it known to take long
    await session.execute("Slow.seconds = 1")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.checkpoint(reason="given up"), 0.5)
    await session.shutdown()
    assert await reasons(session) == ["automatic", "by hand"]


@pytest.mark.parametrize("kept", [1, 2])
async def test_what_the_next_capture_is_built_on_is_not_removed(tmp_path: Path, kept: int) -> None:
    options = {"auto_checkpoint": "cell", "keep": retention.Last(kept)}
    session = await Session("short", store=open_store(tmp_path), **options).start()
    await session.execute("import numpy as np\na = np.ones(300_000)")
    for number in range(150):
        assert await value(session, f"a[{number}] = {number}\n{number}") == number
    await session.shutdown()
    assert len(await session.list()) == kept


async def test_a_failure_beside_the_session_is_raised_at_the_end(failing) -> None:
    await failing.execute("x = 1")
    with pytest.raises(StorageFull):
        await failing.shutdown()
    assert not failing.alive
    await failing.shutdown()


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.execute("x = 2"),
        lambda session: session.checkpoint(),
        lambda session: session.flush(),
        lambda session: session.restore(),
        lambda session: session.rollback(),
        lambda session: session.fork("other"),
        lambda session: session.transaction().__aenter__(),
        lambda session: session.shutdown(),
        lambda session: session.__aexit__(None, None, None),
    ],
    ids=[
        "execute",
        "checkpoint",
        "flush",
        "restore",
        "rollback",
        "fork",
        "transaction",
        "shutdown",
        "aexit",
    ],
)
async def test_whatever_call_comes_next_raises_a_failure_beside_the_session(
    make, store, call: Callable[[Session], Awaitable[object]]
) -> None:
    """Once; and what was not saved is in the next checkpoint."""
    session = await make("full", auto_checkpoint="cell")
    save, session._history.save = session._history.save, full_disk
    await session.execute("x = 1")
    await wait_for_commits(session)
    session._history.save = save
    with pytest.raises(StorageFull, match="no room"):
        await call(session)
    if session.alive:
        assert await value(session, "x") == 1
        await session.flush()
        await session.shutdown()
        again = await Session.resume("full", store=store)
        assert await value(again, "x") == 1
        await again.shutdown()
    await session.shutdown()


async def test_a_failure_at_the_end_does_not_hide_an_error(store) -> None:
    session = Session("full", store=store, auto_checkpoint="cell")
    with pytest.raises(ValueError, match="mine") as caught:  # noqa: PT012
        async with session:
            session._history.save = full_disk
            await session.execute("x = 1")
            raise ValueError("mine")
    assert any("no room" in note for note in caught.value.__notes__)


async def test_a_capture_that_fails_by_itself_is_raised_by_the_next_call(make) -> None:
    session = await make("broken", auto_checkpoint="cell")
    await session.execute(
        "from holdfast.session.worker import capture\n"
        "def run(*_): raise SystemExit('no')\ncapture.Capture.run = run"
    )
    with pytest.raises(CaptureFailed, match="no"):
        await session.execute("1")
    with pytest.raises(CaptureFailed, match="no"):
        await session.shutdown()


@pytest.mark.parametrize("automatic", ["cell", 0.05])
async def test_whatever_fails_beside_the_session_is_raised_by_the_next_call(
    make, monkeypatch: pytest.MonkeyPatch, automatic: str | float
) -> None:
    """Also what is no error of ours, before anything is saved; and the clock goes on."""
    session = await make("odd", auto_checkpoint=automatic)

    def fail(*args: object, **options: object) -> None:
        raise RuntimeError("can't start new thread")

    await value(session, "x = 1")
    await until(lambda: session._history.base() > 0, "the first is made")
    with monkeypatch.context() as patched:
        patched.setattr(session._history, "begin", fail)
        patched.setattr(session._history, "has", fail)
        await value(session, "x = 2")
        await until(lambda: session._keeper.saving._failure is not None, "the second fails")
    with pytest.raises(CaptureFailed, match="new thread"):
        await session.execute("x = 3")
    await session.execute("x = 4")
    await until(lambda: session._keeper.autosave.due is False, "the third is made")
    await session.flush()
    await session.restore()
    assert await value(session, "x") == 4


async def test_cells_run_while_a_checkpoint_is_written(make) -> None:
    session = await make("slow")
    gate, save = threading.Event(), session._history.save

    def slowly(*args, **options):
        gate.wait(20)
        return save(*args, **options)

    session._history.save = slowly
    await session.execute("x = 1")
    first = asyncio.create_task(session.checkpoint(reason="first"))
    while not session._keeper.saving.waiting:
        await asyncio.sleep(0.01)
    assert await value(session, "x = 2\nx") == 2
    second = asyncio.create_task(session.checkpoint(reason="second"))
    third = asyncio.create_task(session.checkpoint(reason="third"))
    await until(lambda: session._keeper.saving.waiting == MOST, "the second is captured")
    await asyncio.sleep(0.3)
    assert session._keeper.saving.waiting == MOST  # the third, which was asked for, waits for room
    gate.set()
    await asyncio.gather(first, second, third)
    assert await reasons(session) == ["third", "second", "first"]
    assert (await third).parents == ((await second).id,)
    await session.restore(await first)
    assert await value(session, "x") == 1


async def test_of_a_cancelled_call_the_failure_is_kept(session: Session) -> None:
    gate = threading.Event()

    def fail(*args: object, **options: object) -> None:
        gate.wait(20)
        raise OSError("disk")

    session._history.save = fail
    waiting = asyncio.create_task(session.checkpoint())
    while not session._keeper.saving.waiting:
        await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    with pytest.raises(CaptureFailed, match="disk"):
        await session.flush()
    await session.flush()


@pytest.mark.parametrize("value", ["minute", 0, -1, float("nan"), True, []])
def test_times_that_are_none(value) -> None:
    with pytest.raises(BadInput):
        Session("other", auto_checkpoint=value)


def test_a_policy_that_is_none() -> None:
    with pytest.raises(BadInput, match="policy"):
        Session("other", keep=5)


# -- programs that end without ending their session -------------------------------------

LEFT_OPEN = """
import asyncio, os, sys, threading
from holdfast.model.errors import StorageFull
from holdfast.session import Session
from holdfast.store import open_store

def full(*args, **options):
    raise StorageFull("no room")

async def main():
    session = await Session("left", store=open_store(store), auto_checkpoint=every).start()
    await session.execute("x = 1")
    await session.flush()
    if state == "full":
        session._history.save = full
    if state != "saved":
        await session.execute("x = 2")
    if state == "full" and every == "cell":
        async with session._driver.lock:
            await session._keeper.saving.settled()
    if state == "ended":
        await session.shutdown()

store, automatic, state, how = sys.argv[1:]
every = {"cell": "cell", "clock": 1000.0, "never": None}[automatic]
loop = asyncio.new_event_loop()
if how == "run":
    asyncio.run(main())
    if state == "forked":
        child = os.fork()
        if child == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
elif how == "closed":
    loop.run_until_complete(main())
    loop.close()
elif how == "stopped":
    loop.run_until_complete(main())
else:
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(main(), loop).result()
"""


def left_open(store: Path, automatic: str, state: str, how: str) -> str:
    """What such a program says on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, str(store), automatic, state, how],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr


LOST = "holdfast: what session/left ran last is lost: "


@pytest.mark.parametrize("how", ["run", "closed", "stopped", "thread"])
def test_a_failure_that_no_call_raised_is_told_when_the_program_ends(
    tmp_path: Path, how: str
) -> None:
    assert left_open(tmp_path / "store", "cell", "full", how) == f"{LOST}no room\n"


@pytest.mark.parametrize("how", ["run", "closed", "stopped", "thread"])
def test_what_no_loop_can_save_any_more_is_told_when_the_program_ends(
    tmp_path: Path, how: str
) -> None:
    told = left_open(tmp_path / "store", "clock", "due", how)
    assert told.startswith(f"{LOST}the event loop ended before it was saved (")
    assert "shutdown()" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("how", ["run", "closed", "stopped", "thread"])
def test_a_checkpoint_on_its_way_when_the_program_ends_is_there_or_is_missed_aloud(
    tmp_path: Path, how: str
) -> None:
    told = left_open(tmp_path / "store", "cell", "due", how)
    with sync.Session.resume("left", store=str(tmp_path / "store")) as again:
        found = again.execute("x").value
    assert (found == 2 and told == "") or (found == 1 and told.startswith(LOST)), (found, told)


@pytest.mark.parametrize(
    ("automatic", "state"),
    [("cell", "saved"), ("never", "due"), ("never", "full"), ("cell", "ended"), ("clock", "ended")],
)
def test_where_nothing_is_lost_nothing_is_told(tmp_path: Path, automatic: str, state: str) -> None:
    assert left_open(tmp_path / "store", automatic, state, "run") == ""


def test_a_fork_does_not_tell_what_its_parent_has_to(tmp_path: Path) -> None:
    told = left_open(tmp_path / "store", "clock", "forked", "run")
    assert told.count(LOST) == 1


# -- transactions -----------------------------------------------------------------------


async def test_a_transaction_that_raises_never_was(session: Session) -> None:
    await session.execute("x, rows = 1, [1]")
    with pytest.raises(ValueError, match="mine"):  # noqa: PT012
        async with session.transaction() as transaction:
            await session.execute("x = 2\nrows.append(2)\nnew = 3")
            raise ValueError("mine")
    assert transaction.rolled_back
    assert await value(session, "[x, rows, 'new' in globals()]") == [1, [1], False]
    assert await reasons(session) == [
        f"rollback to {transaction.checkpoint.short}",
        "transaction",
    ]


async def test_a_transaction_that_ends_well(session: Session) -> None:
    async with session.transaction("load") as transaction:
        await session.execute("x = 2")
        assert (await session.execute("1 / 0", check=False)).error is not None
    assert not transaction.rolled_back
    assert await value(session, "x") == 2
    assert await reasons(session) == ["load"]
    assert (await session.execute("1 / 0")).error is not None  # outside, nothing is raised


async def test_a_failing_cell_ends_its_transaction(session: Session) -> None:
    await session.execute("x = 1")
    with pytest.raises(CellFailed, match="ZeroDivisionError"):  # noqa: PT012
        async with session.transaction():
            await session.execute("x = 2\n1 / 0")
            pytest.fail("it went on")
    assert await value(session, "x") == 1


async def test_a_worker_that_dies_in_a_transaction(session: Session) -> None:
    await session.execute("x = 1")
    with pytest.raises(CellFailed, match="WorkerDied"):
        async with session.transaction():
            await session.execute("x = 2\nimport os\nos._exit(1)")
    assert await value(session, "x") == 1


async def test_checkpoints_and_transactions_inside_a_transaction(session: Session) -> None:
    await session.execute("x = 1")
    with pytest.raises(RuntimeError):  # noqa: PT012
        async with session.transaction():
            await session.execute("x = 2")
            await session.checkpoint()
            with pytest.raises(CellFailed):
                async with session.transaction():
                    await session.execute("x = 3\n1 / 0")
            assert await value(session, "x") == 2
            raise RuntimeError
    assert await value(session, "x") == 1


async def test_no_automatic_checkpoint_in_a_transaction(make, store) -> None:
    session = await make("auto", auto_checkpoint="cell")
    await session.execute("x = 1")
    async with session.transaction():
        await session.execute("x = 2")
        await session.execute("x = 3")
        await session.flush()
        assert (await reasons(session))[0] == "transaction"
    await session.flush()
    assert (await reasons(session))[0] == "automatic"


async def test_a_transaction_of_a_session_that_was_shut_down(session: Session) -> None:
    with pytest.raises(ValueError, match="mine") as caught:  # noqa: PT012
        async with session.transaction():
            await session.shutdown()
            raise ValueError("mine")
    assert any("could not be rolled back" in note for note in caught.value.__notes__)


def test_the_store_is_opened_once() -> None:
    store = open_store("memory://")
    assert Session("a", store=store).store is store


@pytest.mark.parametrize("end", ["flush", "shutdown"])
async def test_a_worker_that_ends_between_a_cell_and_its_checkpoint(
    make, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The cell has been answered, but nothing may say that it is durable."""
    session = await make("torn", auto_checkpoint="cell")
    await session.execute("x = 1")
    await session.flush()
    cell = session._driver._cell

    async def then_killed(worker: WorkerProcess, *rest: Any) -> None:
        await cell(worker, *rest)
        worker.kill()
        await worker.ended()

    with monkeypatch.context() as torn:
        torn.setattr(session._driver, "_cell", then_killed)
        assert await value(session, "x = 2\nx") == 2
        await until(lambda: not session._driver.lock.locked(), "it was killed")
    with pytest.raises(CaptureFailed, match="ended before cell 2 was saved"):
        await getattr(session, end)()
    assert await reasons(session) == ["cell 1"]
    if end == "flush":
        await session.flush()  # it is told once
        assert (await session.execute("x")).error.type == "WorkerDied"
        assert await value(session, "x") == 1
        await session.flush()


@pytest.mark.parametrize("end", ["flush", "shutdown"])
async def test_a_worker_that_ends_before_its_time_came(make, end: str) -> None:
    """Every so often is not often enough, then."""
    session = await make("rare", auto_checkpoint=1000)
    assert await value(session, "x = 1\nx") == 1
    os.kill(session.pid, signal.SIGKILL)
    await until(lambda: not session.alive, "it has ended")
    with pytest.raises(CaptureFailed, match="ended before what ran last was saved"):
        await getattr(session, end)()


async def test_a_cell_that_answers_while_the_session_ends_is_saved(
    make, store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await make("late", auto_checkpoint="cell")
    await session.execute("x = 0")
    cell = session._driver._cell

    async def then_ends(*given: Any) -> None:
        await cell(*given)
        await until(lambda: session._driver.closing, "the session ends")

    monkeypatch.setattr(session._driver, "_cell", then_ends)
    assert await value(session, "x = 1\nx") == 1  # as whoever called it was told
    await session.shutdown()
    again = await Session.resume("late", store=store)
    assert await value(again, "x") == 1
    await again.shutdown()
