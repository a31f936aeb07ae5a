"""Forks of a worker: libraries whose native threads they lack, and what stands still in them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.model.readiness import readable
from holdfast.session import Session, SessionPool
from holdfast.session.arriving import PATIENCE, _Activity
from holdfast.store import Store

Make = Callable[..., Awaitable[Session]]

# What makes captures long enough to be made in a copy, and work for a library's threads.
BEGINNING = """\
import os, time
import numpy as np
class Slow:
    def __reduce__(self):
        time.sleep(0.1)
        return Slow, ()
slow = Slow()
x = np.random.default_rng(0).normal(size=(2000, 300))
class Computes:
    def __reduce__(self):
        with open("copies", "a") as file:
            file.write(f"{os.getpid()} {compute()}\\n")
        return Computes, ()
"""
# By library: what uses its threads, in the process as in its copies.
COMPUTE = {
    "numpy": "def compute(): return float((x.T @ x).sum())",
    "scipy": "import scipy.linalg\ndef compute(): return float(scipy.linalg.svdvals(x).sum())",
    "sklearn": (
        "from sklearn.ensemble import HistGradientBoostingRegressor as Model\n"
        "model = Model(max_iter=5).fit(x, x[:, 0])\n"
        "def compute(): return float(model.predict(x).sum())"
    ),
    "torch": (
        "import torch\ntorch.set_num_threads(2)\nt = torch.from_numpy(x)\n"
        "def compute(): return float((t @ t.T).exp2().clamp(max=1).sum())"
    ),
}


async def run(session: Session, code: str) -> object:
    return (await session.execute(code, check=True)).value


@pytest.fixture
async def session(make: Make, tmp_path: Path) -> Session:
    made = await make("work", cwd=tmp_path)
    await run(made, BEGINNING)
    await made.checkpoint()
    return made


@pytest.mark.parametrize("library", COMPUTE)
async def test_copies_compute_with_every_library(
    session: Session, library: str, tmp_path: Path
) -> None:
    await run(session, COMPUTE[library])
    expected = await run(session, "computes = [Computes()]\nbefore = compute()\nbefore")
    started = time.monotonic()
    for _ in range(2):
        assert (await session.checkpoint()).report["computes"].outcome == "exact"
    assert time.monotonic() - started < 2 * PATIENCE
    lines = [line.split() for line in (tmp_path / "copies").read_text().splitlines()]
    assert len(lines) == 2
    assert all(int(pid) != session.pid for pid, _ in lines), "made in copies"
    assert [float(value) for _, value in lines] == pytest.approx([expected] * 2)
    await session.restore()
    assert await run(session, "compute() == before, type(computes[0]) is Computes") == (True, True)


@pytest.mark.parametrize("deep", [False, True], ids=["a variable", "inside another object"])
async def test_frames_of_polars_are_taken_in_place(session: Session, deep: bool) -> None:
    """Rayon's threads put the pieces of a frame together, and no copy has them."""
    await run(session, "import polars as pl\npiece = pl.DataFrame({'a': range(50_000)})\n"
              "frame = pl.concat([piece] * 4, rechunk=False)\ndel piece\n"
              "_ = frame.group_by('a').len()")  # fmt: skip
    if deep:
        await run(session, "class Owner: pass\nowner = Owner()\nowner.frame = frame\ndel frame")
    where = "owner.frame" if deep else "frame"
    for number in range(3):
        await run(session, f"number = {number}")
        started = time.monotonic()
        assert "placeholder" not in {i.outcome for i in (await session.checkpoint()).report.items}
        assert time.monotonic() - started < PATIENCE
    await session.restore()
    assert await run(session, f"number, {where}['a'].sum(), {where}.height") == (
        2, 4 * sum(range(50_000)), 200_000,
    )  # fmt: skip


HANGS = """\
worker = os.getpid()
class Hangs:
    def __reduce__(self):
        with open("copies", "a") as file:
            file.write(f"{os.getpid()}\\n")
        while os.getpid() != worker:
            time.sleep(60)
        return Hangs, ()
"""


async def test_a_type_that_hangs_is_remembered(session: Session, tmp_path: Path) -> None:
    await run(session, HANGS + "hangs = {'deep': [Hangs()]}")
    copies = tmp_path / "copies"
    made = await session.checkpoint()  # after a copy that was ended
    assert made.report["hangs"].outcome == "rebuilt"
    assert "nobody has tried to read it back" in made.report["hangs"].reason
    first, second = map(int, copies.read_text().split())
    assert second == session.pid
    for _ in range(2):
        await session.checkpoint()
    assert not Path(f"/proc/{first}").exists()
    assert {int(pid) for pid in copies.read_text().split()[1:]} == {session.pid}
    await session.restore()
    assert await run(session, "type(hangs['deep'][0]) is Hangs") is True
    await run(session, "del hangs")
    await session.checkpoint()
    assert (await session.checkpoint()).pause_ms < 90, "copies are made again"


async def test_automatic_checkpoints_survive_a_hang(
    make: Make, store: Store, tmp_path: Path
) -> None:
    session = await make("auto", cwd=tmp_path, auto_checkpoint="cell")
    await run(session, BEGINNING)
    await session.flush()
    await run(session, HANGS + "hangs = Hangs()")
    await run(session, "y = 5")
    await session.flush()
    head = store.head("session/auto")
    assert head is not None
    await session.restore(head.id)
    assert await run(session, "y, type(hangs) is Hangs") == (5, True)


async def test_a_fork_of_a_hanging_session_begins(make: Make, session: Session) -> None:
    await run(session, HANGS + "hangs = Hangs()")
    other = await session.fork("other")
    try:
        assert await run(other, "type(hangs) is Hangs") is True
    finally:
        await other.shutdown()


async def test_a_killed_worker_leaves_no_copy(session: Session, tmp_path: Path) -> None:
    import asyncio

    await run(session, HANGS + "hangs = Hangs()")
    task = asyncio.create_task(session.checkpoint())
    copies = tmp_path / "copies"
    while not (copies.exists() and copies.read_text().endswith("\n")):
        await asyncio.sleep(0.01)
    copy = os.pidfd_open(int(copies.read_text()))
    assert session.pid is not None
    os.kill(session.pid, signal.SIGKILL)
    try:
        assert readable([copy], 4 * PATIENCE)  # it may come to its end, but it stands still
    finally:
        os.close(copy)
    assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], Exception)


HOST = """\
import asyncio
from holdfast.session import Session
from holdfast.store import open_store
async def main():
    session = await Session("x", store=open_store("memory://"), cwd={folder!r}).start()
    await session.execute({code!r}, check=True)
    await session.checkpoint()
    await session.execute("hangs = Hangs()", check=True)
    await session.checkpoint()
asyncio.run(main())
"""


async def test_a_killed_host_leaves_no_copy(tmp_path: Path) -> None:
    host = HOST.format(folder=str(tmp_path), code=BEGINNING + HANGS)
    copies = tmp_path / "copies"
    with subprocess.Popen([sys.executable, "-c", host]) as process:
        while not (copies.exists() and copies.read_text().endswith("\n")):
            assert process.poll() is None
            time.sleep(0.01)
        copy = os.pidfd_open(int(copies.read_text()))
        process.kill()
    try:
        assert readable([copy], PATIENCE)
    finally:
        os.close(copy)


async def test_warm_ups_may_compute(store: Store) -> None:
    """A template's threads are ended before it is forked: its workers compute as any other."""
    warmup = "import torch\ntorch.set_num_threads(2)\nt = torch.ones(1000, 1000)\n_ = (t @ t).exp()"
    async with (
        SessionPool(min_idle=1, warmup=warmup, store=store) as pool,
        pool.session("warm") as session,
    ):
        assert await run(session, "float((t @ t).sum())") == 1000.0**3


def test_a_process_that_works_does_not_stand_still() -> None:
    code = "import sys\nsys.stdin.readline()\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        sleeping = _Activity(process.pid)
        while sleeping.idle() < 0.2:
            time.sleep(0.01)
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        while sleeping.idle() > 0.1:
            time.sleep(0.01)
        waiting = _Activity(os.getpid())  # for a child
        assert waiting.idle() == pytest.approx(0, abs=0.1)
        process.kill()
