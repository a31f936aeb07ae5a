"""Automatic checkpoints of large sessions: nobody waits for them, and none of the work is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.model.errors import StorageFull
from holdfast.session import Session
from holdfast.store import open_store

LARGE = "import numpy as np\nlarge = np.ones(3_000_000)"  # 24 MB: more than is written in no time


async def reasons(session: Session) -> list[str]:
    return [cp.reason for cp in await session.list()]


class Slow:
    """A store that takes as long as a test wants it to."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.open = threading.Event()
        self.error: Exception | None = None
        self._save, session._history.save = session._history.save, self.save

    def save(self, *args: object, **options: object) -> object:
        assert self.open.wait(60)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return self._save(*args, **options)

    async def crowd(self, last: int = 5) -> None:
        """Cells 1 and 2 are on their way; all others up to the last one find no room."""
        for number in range(1, last + 1):
            code = f"{LARGE}\nx = 1" if number == 1 else f"x = {number}"
            await asyncio.wait_for(self.session.execute(code), 60)
        assert self.session._keeper.saving.waiting == 2


@pytest.fixture
async def slow(make) -> Slow:
    return Slow(await make("large", auto_checkpoint="cell"))


async def test_cells_share_the_checkpoint_that_was_put_off(slow: Slow) -> None:
    await slow.crowd()
    slow.open.set()
    async with asyncio.timeout(60):
        while (await reasons(slow.session))[:1] != ["cell 5"]:  # by itself
            await asyncio.sleep(0.01)
    assert await reasons(slow.session) == ["cell 5", "cell 2", "cell 1"]
    await slow.session.execute("x = 6")
    await slow.session.flush()
    assert (await reasons(slow.session))[:2] == ["cell 6", "cell 5"]


async def test_it_is_made_before_the_end(slow: Slow, store) -> None:
    await slow.crowd()
    ending = asyncio.create_task(slow.session.shutdown())
    await asyncio.sleep(0)
    slow.open.set()
    await ending
    assert await reasons(slow.session) == ["cell 5", "cell 2", "cell 1"]
    async with await Session.resume("large", store=store) as again:
        assert (await again.execute("x")).value == 5


async def test_it_is_made_before_going_back(slow: Slow) -> None:
    await slow.crowd()
    slow.open.set()
    await slow.session.rollback()
    assert (await slow.session.execute("x")).value == 2
    left = next(cp for cp in await slow.session.list() if cp.reason == "cell 5")
    await slow.session.restore(left)  # what was left behind is there
    assert (await slow.session.execute("x")).value == 5


async def test_a_checkpoint_that_was_asked_for_waits_and_has_all(slow: Slow) -> None:
    await slow.crowd()
    asked = asyncio.create_task(slow.session.checkpoint("asked for"))
    while not slow.session._driver.lock.locked():
        await asyncio.sleep(0.01)
    assert not asked.done()
    slow.open.set()
    await asked
    await slow.session.flush()
    assert await reasons(slow.session) == ["asked for", "cell 2", "cell 1"]


async def test_a_failure_meanwhile_is_raised_and_the_next_one_has_all(slow: Slow, store) -> None:
    await slow.crowd()
    slow.error = StorageFull("no room")
    slow.open.set()
    with pytest.raises(StorageFull):
        await slow.session.flush()
    await slow.session.flush()
    assert await reasons(slow.session) == ["cell 5", "cell 2"]
    await slow.session.shutdown()
    async with await Session.resume("large", store=store) as again:
        asked = "[x, large.shape, float(large.min()), float(large.max())]"
        assert (await again.execute(asked)).value == [5, (3_000_000,), 1.0, 1.0]
        await again.restore("~1")
        assert (await again.execute("[x, float(large.sum())]")).value == [2, 3_000_000.0]


HOST = """
import asyncio, sys, time
from holdfast.session import Session

async def main():
    session = Session("felt", store=sys.argv[1], auto_checkpoint="cell")
    async with session:
        await session.execute("import numpy as np")
        await session.execute("a = np.random.default_rng(0).random(25_000_000)")
        times = []
        for number in range(8):
            began = time.perf_counter()
            await session.execute(f"x = {number}")
            times.append(round((time.perf_counter() - began) * 1000))
        print(*times, flush=True)
        while session._keeper.saving.waiting or session._keeper.autosave.due:
            await asyncio.sleep(0.01)
        print("saved", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.mark.alone
async def test_200_megabytes_are_not_felt_and_survive_a_kill(tmp_path: Path) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, str(tmp_path / "store")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert host.stdout is not None
        times = [int(word) for word in host.stdout.readline().split()]
        assert len(times) == 8
        assert max(times) <= 100, times
        assert host.stdout.readline() == "saved\n"  # nobody called anything meanwhile
    finally:
        host.kill()
        host.wait()
    with open_store(tmp_path / "store") as store:
        async with await Session.resume("felt", store=store) as again:
            assert (await again.execute("[x, len(a)]")).value == [7, 25_000_000]
