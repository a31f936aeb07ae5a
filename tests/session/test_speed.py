"""What a checkpoint of an ordinary session costs: 200 variables, 20 functions, 5 classes."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast import sync
from holdfast.store import open_store

VALUES = ("{0}", "'s{0}'", "[{0}, 'x']", "{{'a': {0}, 'b': [{0}]}}", "({0}, {0}.5)")
SETUP = "\n".join(
    [f"v{i} = " + VALUES[i % 5].format(i) for i in range(200)]
    + [f"def f{i}(x, k={i}):\n    'doc'\n    return x * k + v0" for i in range(20)]
    + [f"class C{i}:\n    def __init__(self): self.y = {i}\no{i} = C{i}()" for i in range(5)]
    + ["shared = [1]\na1 = {'s': shared}\na2 = [shared]"]
)


@pytest.mark.alone
def test_an_ordinary_session_waits_little(tmp_path: Path) -> None:
    """W1: a step, which is durable when it is counted, in 5 ms, and an answer from the restored
    session, with the source of what it defined, in 50 ms.

    The medians of a quiet moment: on a machine that has none for so long, the best of all steps.
    """
    ask = "[getsource(f7), getsource(C3.__init__), [a1['s'] is shared, o4.y]]"
    with sync.Session("ordinary", store=str(tmp_path / "store")) as session:
        session.execute("from inspect import getsource\n" + SETUP, check=True)
        session.checkpoint()
        every: list[Step] = []
        end = time.monotonic() + 15
        while True:
            some = [_step(session, number) for number in range(20)]
            every += some
            quiet = sum(step.waited for step in some) <= 0.1 * sum(step.whole for step in some)
            median = statistics.median(step.whole for step in some)
            if median <= 5 or time.monotonic() > end:
                break
        best = min(step.whole for step in every)
        assert (median if quiet else min(median, best)) <= 5, (median, best, quiet)
        assert statistics.median(step.pause for step in every) <= 5
        restores: list[float] = []
        while len(restores) < 5 or (statistics.median(restores[-5:]) > 50 and len(restores) < 50):
            started = time.perf_counter()
            session.restore()
            source, method, data = session.execute(ask, check=True).value
            restores.append((time.perf_counter() - started) * 1000)
        assert source == "def f7(x, k=7):\n    'doc'\n    return x * k + v0\n"
        assert method == "    def __init__(self): self.y = 3\n"
        assert data == [True, 4]
    assert statistics.median(restores[-5:]) <= 50


class Step(NamedTuple):
    """Milliseconds of one step."""

    whole: float
    pause: float
    waited: float  # for a processor, by this process and the session's


def _step(session: sync.Session, number: int) -> Step:
    session.execute(f"v{number} = {time.time()!r}", check=True)
    assert session.pid is not None
    pids = (os.getpid(), session.pid)
    before, started = _waited(*pids), time.perf_counter()
    pause = session.checkpoint().pause_ms
    whole = (time.perf_counter() - started) * 1000
    return Step(whole, pause, _waited(*pids) - before)


def _waited(*pids: int) -> float:
    """How long threads could have run, but did not, in milliseconds since they began."""
    found = (path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(path.read_text().split()[1]) for path in found) / 1e6


@pytest.mark.alone
def test_the_session_waits_for_what_changed_not_for_what_it_has() -> None:
    """A hundred times the memory, the same page of it written to."""
    waited: list[float] = []
    for count in (500_000, 50_000_000):
        with sync.Session("sized", store=open_store("memory://")) as session:
            session.execute(f"import numpy as np\na = np.ones({count})", check=True)
            session.checkpoint()
            steps = []
            for number in range(15):
                session.execute(f"a[7] = {number}", check=True)
                steps.append(session.checkpoint().pause_ms)
            waited.append(min(steps))
    assert waited[1] < 2 * waited[0] + 1, waited


@pytest.mark.alone
def test_running_a_cell_costs_little_more_than_running_it() -> None:
    """No more than 1 ms over `exec` of the same cell, from the call to its result.

    The medians of a quiet moment: on a machine that has none for so long, the best of all cells.
    """
    cell = "x += sum(i * i for i in range(1000))"
    namespace: dict[str, object] = {"x": 0}
    best = math.inf
    end = time.monotonic() + 15
    with sync.Session("quick", store="memory://") as session:
        session.execute("x = 0")
        assert session.pid is not None
        pids = (os.getpid(), session.pid)
        while True:
            plain = [_seconds(lambda: exec(cell, namespace)) for _ in range(200)]
            before = _waited(*pids)
            took = [_seconds(lambda: session.execute(cell)) for _ in range(200)]
            quiet = _waited(*pids) - before <= 0.1 * sum(took) * 1000
            median = statistics.median(took) - statistics.median(plain)
            best = min(best, min(took) - statistics.median(plain))
            if median <= 0.001 or time.monotonic() > end:
                break
    assert (median if quiet else min(median, best)) <= 0.001, (median, best, quiet)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@pytest.mark.alone
def test_watched_memory_costs_a_cell_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of W2, in a session whose memory is watched and in one whose is not, in turns.

    A page that is written to for the first time since a checkpoint costs the kernel a fault.
    """
    setup = "import numpy as np\n" + "\n".join(f"a{i} = np.ones(6_250_000)" for i in range(4))
    took: dict[str, list[float]] = {"on": [], "off": []}
    steps: list[float] = []
    with (
        sync.Session("on", store=str(tmp_path / "on")) as watched,
        sync.Session("off", store=str(tmp_path / "off")) as unwatched,
    ):
        for step in range(121):
            for how, session in (("on", watched), ("off", unwatched)):
                monkeypatch.setenv("HOLDFAST_TRACK_MEMORY", how)
                if step:
                    cell = f"a{step % 4}[{step % 50} * 62500:{step % 50 + 1} * 62500] += 1.0"
                    started = time.perf_counter()
                    session.execute(cell, check=True)
                    took[how].append(time.perf_counter() - started)
                else:
                    session.execute(setup, check=True)
                if how == "on" or step % 40 == 0:  # without watching, each looks at all memory
                    session.checkpoint()
                if how == "on" and step:
                    steps.append(time.perf_counter() - started)
    # The best of some: what else the machine does is not measured here.
    assert min(took["on"]) - min(took["off"]) <= 0.05 * min(steps)


@pytest.mark.alone
def test_watched_memory_costs_a_bare_cell_a_fault_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What W2's cell alone takes longer in a session whose memory is watched: the kernel notes the
    first write to each page since a checkpoint. That cannot be less than a fault, and is no more
    than what memory costs that is written to for the first time at all."""
    setup = "import mmap, time\nimport numpy as np\na = np.ones(6_250_000)\n"
    fresh = (
        "m = np.frombuffer(mmap.mmap(-1, 500_000))\nm_times = []\nfor _ in range(2):\n"
        "    t = time.perf_counter()\n    m += 1.0\n    m_times.append(time.perf_counter() - t)\n"
        "del m\nm_times[0] - m_times[1]"
    )
    took: dict[str, list[float]] = {"on": [], "off": []}
    faults: list[float] = []
    with (
        sync.Session("on", store=str(tmp_path / "on")) as watched,
        sync.Session("off", store=str(tmp_path / "off")) as unwatched,
    ):
        for step in range(101):
            for how, session in (("on", watched), ("off", unwatched)):
                monkeypatch.setenv("HOLDFAST_TRACK_MEMORY", how)
                first = step % 99 * 62500
                cell = f"a[{first}:{first + 62500}] += 1.0" if step else setup
                result = session.execute(cell, check=True)
                if step:
                    took[how].append(result.duration)
                if how == "on" or not step:  # without watching, each looks at all memory
                    session.checkpoint()
            faults.append(watched.execute(fresh, check=True).value)
    # Twice, for these are the lowest tenths of times as short as one wakes up in.
    more = statistics.quantiles(took["on"], n=10)[0] - statistics.quantiles(took["off"], n=10)[0]
    assert more <= 2 * statistics.quantiles(faults, n=10)[0] + 50e-6


FRESH = """
import sys, time
from holdfast import sync
started = time.perf_counter()
with sync.Session.resume("large", store=sys.argv[1]) as session:
    value = session.execute("int(a9[5])", check=True).value
    print(value, time.perf_counter() - started)
"""


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_four_gigabytes_answer_at_once_in_a_fresh_process(tmp_path: Path) -> None:
    """A host that has just begun brings the session back in a new interpreter, with its imports,
    and has the answer; with the imports alone beside it."""
    make = "".join(f"a{i} = np.arange({i} << 40, ({i} << 40) + (32 << 20))\n" for i in range(16))
    store = str(tmp_path / "store")
    with open_store(store) as opened, sync.Session("large", store=opened) as session:
        session.execute("import numpy as np\n" + make, check=True)
        session.checkpoint()
    took: list[float] = []
    alone: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import numpy"], check=True)
        alone.append(time.perf_counter() - started)
        fresh = [sys.executable, "-c", FRESH, store]
        told = subprocess.run(fresh, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        assert int(told[0]) == (9 << 40) + 5
        took.append(float(told[1]))
    print(f"{min(took) * 1e3:.0f} ms, the interpreter and numpy alone {min(alone) * 1e3:.0f} ms")
    assert min(took) <= 0.2, took


@pytest.mark.alone
def test_a_large_session_answers_at_once(tmp_path: Path) -> None:
    with sync.Session("large", store=str(tmp_path / "store")) as session:
        session.execute("import numpy as np\na = np.arange(64 << 20)", check=True)
        session.checkpoint()
        took: list[float] = []
        for _ in range(5):
            started = time.perf_counter()
            session.restore()
            assert session.execute("int(a[12_345_678])").value == 12_345_678
            took.append(time.perf_counter() - started)
    assert min(took) <= 0.2  # half a gigabyte is not read in that time
