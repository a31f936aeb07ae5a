"""What a checkpoint of an ordinary session costs: 200 variables, 20 functions, 5 classes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast import sync

VALUES = ("{0}", "'s{0}'", "[{0}, 'x']", "{{'a': {0}, 'b': [{0}]}}", "({0}, {0}.5)")
SETUP = "\n".join(
    [f"v{i} = " + VALUES[i % 5].format(i) for i in range(200)]
    + [f"def f{i}(x, k={i}):\n    'doc'\n    return x * k + v0" for i in range(20)]
    + [f"class C{i}:\n    def __init__(self): self.y = {i}\no{i} = C{i}()" for i in range(5)]
    + ["shared = [1]\na1 = {'s': shared}\na2 = [shared]"]
)


@pytest.mark.alone
def test_an_ordinary_session_waits_little() -> None:
    with sync.Session("ordinary", store="memory://") as session:
        session.execute(SETUP, check=True)
        pauses: list[float] = []
        for step in range(20):
            session.execute(f"v{step} = 'changed'", check=True)
            checkpoint = session.checkpoint()
            pauses.append(checkpoint.pause_ms)
        restores: list[float] = []
        for _ in range(5):
            started = time.perf_counter()
            session.restore(checkpoint)
            restores.append((time.perf_counter() - started) * 1000)
        assert session.execute("[a1['s'] is shared, o4.y]").value == [True, 4]
    # The best of some: what else the machine does is not measured here.
    assert min(pauses) <= 5
    assert min(restores) <= 50


@pytest.mark.alone
def test_running_a_cell_costs_little_more_than_running_it() -> None:
    with sync.Session("quick", store="memory://") as session:
        session.execute("x = 0")
        took: list[float] = []
        for _ in range(200):
            started = time.perf_counter()
            result = session.execute("x += 1")
            took.append(time.perf_counter() - started - result.duration)
    assert min(took) <= 0.001  # what the machine does besides is not measured


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
