"""Captures in a copy of the worker: the session goes on, and the checkpoint is of the moment."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.session.noted import Noted, parts

from holdfast.model.errors import CaptureFailed
from holdfast.model.readiness import readable
from holdfast.session import Session
from holdfast.session.worker.memory.pagemap import PAGE
from holdfast.testing.waiting import until

SLOW = (
    "import time\n"
    "class Slow:\n"
    "    seconds, gate = 0.1, ''\n"
    "    def __reduce__(self):\n"
    "        time.sleep(Slow.seconds)\n"
    "        while Slow.gate and not __import__('os').path.exists(Slow.gate):\n"
    "            time.sleep(0.01)\n"
    "        return Slow, ()\n"
    "slow = Slow()\nx = 1\nrows = [1]\nalso = [rows]"
)


async def run(session: Session, code: str) -> object:
    result = await session.execute(code)
    assert result.error is None, result.error.traceback
    return result.value


@pytest.fixture
async def slow(make) -> Session:
    """A session whose captures take long enough to be worth a copy."""
    session: Session = await make("slow")
    await run(session, SLOW)
    first = await session.checkpoint()
    assert first.pause_ms > 90
    return session


async def test_the_session_goes_on_while_it_is_captured(slow: Session, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await run(slow, f"Slow.gate = {str(gate)!r}")
    task = asyncio.create_task(slow.checkpoint())
    await asyncio.sleep(0)
    assert await run(slow, "x = 2\nrows.append(2)\nx") == 2  # the capture waits for its gate
    assert not task.done()
    gate.touch()
    cp = await task
    assert cp.report["x"].outcome == "exact"
    await slow.restore(cp)
    assert await run(slow, "[x, rows, also[0] is rows]") == [1, [1], True]


async def test_arrays_that_are_written_to_while_a_copy_captures_them(
    slow: Session, store, tmp_path: Path
) -> None:
    """The copy has them as they were, and the next increment has what was written meanwhile."""
    gate = tmp_path / "gate"
    past = Noted.of(slow, store)
    await run(slow, "import numpy as np\na = np.arange(400_000.0)\ndeep = [np.arange(300_000)]")
    for _ in range(2):  # what is deep inside is watched when a copy has found it
        await slow.checkpoint()
    await run(slow, f"a[1000] = 1\ndeep[0][7] = 1\nSlow.gate = {str(gate)!r}")
    task = asyncio.create_task(slow.checkpoint())
    await asyncio.sleep(0)
    await run(slow, "a[1000] = 2\na[200_000] = 2\ndeep[0][9] = 2\ndeep[0][250_000] = 2")
    assert not task.done()
    gate.touch()
    first = await task
    assert 0 < past.brought <= 4 * PAGE < past.memory  # a page of each, wherever it begins
    second = await slow.checkpoint()
    assert 0 < past.brought <= 8 * PAGE
    past.forget()
    full = await slow.checkpoint()
    assert past.brought == past.memory
    assert parts(store, second.checkpoint) == parts(store, full.checkpoint)
    look = "[float(a[i]) for i in (1000, 200_000)] + [int(deep[0][i]) for i in (7, 9, 250_000)]"
    sums = "[float(a.sum()), int(deep[0].sum())]"
    whole = await run(slow, sums)
    await slow.restore(first)
    assert await run(slow, look) == [1.0, 200_000.0, 1, 9, 250_000]
    await slow.restore(second)
    assert await run(slow, look) == [2.0, 2.0, 1, 2, 2]
    assert await run(slow, sums) == whole


@pytest.mark.parametrize("at", [[3, -1], [200_000]], ids=["at its ends", "within"])
async def test_what_an_object_writes_in_a_copy_is_not_the_sessions(
    slow: Session, store, at: list[int]
) -> None:
    """The session never had it: the next increment does not take it over from the checkpoint."""
    past = Noted.of(slow, store)
    await run(
        slow,
        "import numpy as np\na = np.zeros(400_000)\n"
        "class Sly:\n    at = []\n    def __reduce__(self):\n        a[Sly.at] = 7\n"
        "        return Sly, ()\nsly = Sly()",
    )
    for _ in range(2):
        await slow.checkpoint()
    await run(slow, f"Sly.at = {at}")
    written = await slow.checkpoint()
    await run(slow, "Sly.at = []")
    after = await slow.checkpoint()
    assert 0 < past.brought <= 2 * PAGE < past.memory
    assert await run(slow, "int(a.sum())") == 0
    await slow.restore(written)
    assert await run(slow, "int(a.sum())") == 7 * len(at)
    await slow.restore(after)
    assert await run(slow, "int(a.sum())") == 0


async def test_labels_come_back_from_the_copy(slow: Session, store) -> None:
    made = [await slow.checkpoint() for _ in range(2)]
    await run(slow, "y = 1")
    made.append(await slow.checkpoint())
    parts = [store.read(cp.id, "namespace/small") for cp in made]
    assert parts[0] == parts[1]
    assert made[2].report["y"].outcome == "exact"


async def test_a_copy_that_dies_or_never_ends(slow: Session, store) -> None:
    before = store.head("session/slow")
    await run(
        slow, "import os, signal\nclass Bomb:\n    def __reduce__(self): os._exit(3)\nb = Bomb()"
    )
    with pytest.raises(CaptureFailed, match="ended before"):
        await slow.checkpoint()
    await run(slow, "del b\nSlow.seconds = 60")
    with pytest.raises(CaptureFailed, match="longer than"):
        await slow.checkpoint(timeout=1.0)
    assert store.head("session/slow").id == before.id
    await run(slow, "Slow.seconds = 0.1")
    assert (await slow.checkpoint()).report["x"].outcome == "exact"


async def test_a_copy_writes_nothing_to_open_files(slow: Session, tmp_path: Path) -> None:
    path = tmp_path / "log"
    await run(slow, f"log = open({str(path)!r}, 'w')\n_ = log.write('one')")
    cp = await slow.checkpoint()
    await run(slow, "_ = log.write(' two')\nlog.flush()")
    assert path.read_text() == "one two"
    await slow.restore(cp)
    await run(slow, "_ = log.write(' 2'); log.flush()")
    assert path.read_text() == "one 2wo"


async def test_threads_are_captured_in_place(slow: Session) -> None:
    await run(slow, "import threading\ne = threading.Event()\n"
              "t = threading.Thread(target=e.wait, daemon=True)\nt.start()")  # fmt: skip
    cp = await slow.checkpoint()
    assert cp.pause_ms > 90
    assert cp.report["t"].outcome == "placeholder"
    await run(slow, "e.set()\nt.join()\nSlow.seconds = 3.0")
    assert (await slow.checkpoint()).pause_ms < 2500


async def test_threads_that_threading_does_not_know_are_no_less_threads(slow: Session) -> None:
    await run(slow, "import _thread\ne = _thread.allocate_lock()\n_ = e.acquire()\n"
              "_ = _thread.start_new_thread(e.acquire, ())\n"
              "time.sleep(0.1)")  # fmt: skip
    assert (await slow.checkpoint()).pause_ms > 90
    await run(slow, "e.release()\nSlow.seconds = 3.0\ntime.sleep(0.1)")
    assert (await slow.checkpoint()).pause_ms < 2500


WITH_A_THREAD = """
import threading
held, go = threading.Lock(), threading.Event()
def hold():
    with held: go.wait()
thread = threading.Thread(target=hold, daemon=True)
thread.start()
while not held.locked(): pass
def refuse(): raise ValueError("never loads")
def wait():
    held.acquire()
    return 1
class Refuses:
    def __reduce__(self): return refuse, ()
class Waits:
    def __reduce__(self): return wait, ()
class Loads:
    def __reduce__(self): return Loads, ()
refuses, waits, loads = Refuses(), Waits(), Loads()
"""


async def test_threads_leave_nothing_unproven(session: Session) -> None:
    """What cannot be read back is not called exact, also while other threads run."""
    await run(session, WITH_A_THREAD)
    report = (await session.checkpoint()).report
    assert report["refuses"].outcome == "placeholder"
    assert "never loads" in report["refuses"].reason
    assert report["waits"].outcome == "rebuilt"
    assert report["waits"].reason.startswith("it could not be read back")
    assert report["loads"].outcome == "exact"


async def test_record_behind_a_hanging_one_is_proven(session: Session) -> None:
    """A record whose loading ends the child leaves those behind it to the next child."""
    await run(
        session,
        "import os\ndef leave(): os._exit(1)\ndef refuse(): raise ValueError('never loads')\n"
        "class Leaves:\n    def __reduce__(self): return leave, ()\n"
        "class Refuses:\n    def __reduce__(self): return refuse, ()\n"
        "a, b = Leaves(), Refuses()",
    )
    report = (await session.checkpoint()).report
    assert (report["a"].outcome, report["b"].outcome) == ("placeholder", "placeholder")
    assert "did not come to an end" in report["a"].reason
    assert "never loads" in report["b"].reason


HANGS = """
import os, time
def hang(told):
    with open(told, "w") as file:
        file.write(str(os.getpid()))
    while True: time.sleep(60)
class Hangs:
    def __init__(self, told): self.told = told
    def __reduce__(self): return hang, (self.told,)
"""


def ended(pid: int) -> bool:
    """Whether a process that is none of ours ends soon."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(readable([watched], 10.0))
    finally:
        os.close(watched)


async def test_proof_ends_with_its_worker(session: Session, tmp_path: Path) -> None:
    """A child that loads what hangs does not outlive the worker that waits for it."""
    told = tmp_path / "told"
    os.mkfifo(told)
    await run(session, HANGS + f"hangs = Hangs({str(told)!r})")
    task = asyncio.create_task(session.checkpoint())
    child = int(await asyncio.to_thread(told.read_text))
    assert session.pid is not None
    os.kill(session.pid, 9)
    with pytest.raises(CaptureFailed):
        await task
    assert await asyncio.to_thread(ended, child)


HOST = """
import asyncio, sys
from holdfast.session import Session
from holdfast.store import open_store
async def main(told):
    session = await Session("work", store=open_store("memory://")).start()
    (await session.execute(SLOW + HANGS)).check()
    await session.checkpoint()
    await session.execute(f"Slow.__reduce__ = lambda self: hang({told!r})")
    await session.checkpoint(timeout=None)
asyncio.run(main(sys.argv[1]))
"""


def test_copy_without_limit_ends_with_its_host(tmp_path: Path) -> None:
    """A capture that has no timeout, and hangs, does not outlive those who wait for it."""
    told = tmp_path / "told"
    os.mkfifo(told)
    code = f"SLOW, HANGS = {SLOW!r}, {HANGS!r}\n{HOST}"
    host = subprocess.Popen([sys.executable, "-c", code, str(told)])
    copy = int(told.read_text())
    parent = int(Path(f"/proc/{copy}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent != host.pid  # it is a copy of the worker
    host.kill()
    host.wait()
    assert ended(copy)


async def test_copy_outlives_its_worker(slow: Session, store) -> None:
    """A worker that dies after the moment of a capture does not take the capture with it."""
    await run(slow, "x = 7")
    task = asyncio.create_task(slow.checkpoint())
    await until(lambda: slow._driver.arriving is not None and slow._driver.arriving.open, "a copy")
    assert slow.pid is not None
    os.kill(slow.pid, 9)
    assert (await task).report["x"].outcome == "exact"
