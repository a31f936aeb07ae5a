"""How much memory a checkpoint and a restore of large arrays take, host and worker together."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.sandbox import limits
from holdfast.sandbox.contract import Limits
from holdfast.store import open_store

GIB = 1 << 30


class Peak:
    """The most that this process and its descendants had at once; what they share counts once, and
    what they had before, as servers of other tests do, does not count."""

    def __init__(self) -> None:
        self.most = 0
        self._before = {each: _own(each) for each in _family(os.getpid())}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *what: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            now = {each: _own(each) for each in _family(os.getpid())}
            grown = [max(0, size - self._before.get(each, 0)) for each, size in now.items()]
            self.most = max(self.most, sum(grown))


def _family(process: int) -> list[int]:
    found = [process]
    try:
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return found  # it has just ended
    for thread in threads:
        try:
            children = Path(f"/proc/{process}/task/{thread}/children").read_text().split()
        except OSError:
            continue  # so has this one
        for child in children:
            found += _family(int(child))
    return found


def _own(process: int) -> int:
    """Its share of memory that is not the cache of a file, which the kernel takes back."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
    return (found["Pss_Anon"] + found.get("Pss_Shmem", 0)) * 1024


def check(folder: Path, size: int, allowed: int) -> None:
    store = open_store(folder / "store")
    count = size // (256 << 20)
    numbers = ((i << 40, (i << 40) + (32 << 20)) for i in range(count))
    make = "".join(f"a{i} = np.arange({a}, {b})\n" for i, (a, b) in enumerate(numbers))
    look = "[int(each[5_000_000]) for each in (" + "".join(f"a{i}, " for i in range(count)) + ")]"
    with Peak() as peak:
        with sync.Session("large", store=store) as session:
            session.execute("import numpy as np\n" + make, check=True)
            before = session.execute(look, check=True).value
            session.checkpoint()
            session.execute("a0[7] = 1", check=True)
            session.checkpoint()
        with sync.Session.resume("large", store=store) as session:
            assert session.execute(look, check=True).value == before
            session.execute("a0 += 1", check=True)
            session.checkpoint()
            # Every page of every array: stored as deltas, and put together again.
            scatter = "".join(f"a{i}[{i}::100] += 1\n" for i in range(count))
            session.execute(scatter, check=True)
            before = session.execute(look, check=True).value
            assert session.checkpoint().checkpoint.stored_bytes < size // 20
        with sync.Session.resume("large", store=store) as session:
            assert session.execute(look, check=True).value == before
    print(f"{peak.most / GIB:.2f} GiB at most, of {size / GIB:g} GiB in arrays")
    assert peak.most < allowed, f"{peak.most / GIB:.2f} GiB"
    assert peak.most > size, "it was not measured"


def test_half_a_gigabyte(tmp_path: Path) -> None:
    check(tmp_path, GIB // 2, GIB)


def test_a_large_session_is_copied_once_at_a_time(tmp_path: Path) -> None:
    """Each cell writes to all of it, so all that a copy shares with the session becomes its own."""
    size = 9 * GIB // 8
    make = f"import numpy as np\na = [np.full({size // 32}, float(i)) for i in range(4)]"
    with Peak() as peak:
        store = open_store(tmp_path)
        with sync.Session("busy", store=store, auto_checkpoint="cell") as session:
            session.execute(make, check=True)
            for _ in range(4):
                session.execute("for each in a: each += 1", check=True)
            session.flush()
            assert len(session.list()) >= 2
    assert size < peak.most < 2.3 * size, f"{peak.most / size:.2f} times"


def check_in_a_group(folder: Path, size: int, allowed: int) -> None:
    """The same in a process that is given no more memory than that, with all that it starts and the
    cache of its files: what needs more is killed. Where this machine has no control groups, what is
    sampled has to do."""
    inside = Limits(memory_bytes=allowed, cpus=os.cpu_count() or 1, processes=10_000)
    group = limits.make(f"memory-{os.getpid()}", inside, processes=10_000)
    without_swap = {"memory.memsw.limit_in_bytes": str(allowed), "memory.swap.max": "0"}
    for each in group.folders:
        for name, value in without_swap.items():
            if (each / name).exists():
                (each / name).write_text(value)
    program = (
        "from pathlib import Path\nfrom tests.session.test_memory import check\n"
        f"check(Path({str(folder)!r}), {size}, {allowed})"
    )
    try:
        done = subprocess.run(
            group.wrap([sys.executable, "-c", program]),
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        killed = [_killed(each) for each in group.folders]
    finally:
        group.kill()
        group.remove()
    print(done.stdout, *(f"no limit of {each} here" for each in group.missing))
    assert done.returncode == 0, done.stdout
    assert "memory" in group.missing or max(killed) == 0


def _killed(group: Path) -> int:
    """How many processes the kernel has killed for want of memory; -1 where it does not count."""
    for name in ("memory.oom_control", "memory.events"):
        if (group / name).exists():
            counts = dict(line.split() for line in (group / name).read_text().splitlines())
            return int(counts["oom_kill"])
    return -1


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_four_gigabytes_within_eight(tmp_path: Path) -> None:
    check_in_a_group(tmp_path, 4 * GIB, 8 * GIB)


def test_what_restores_replace_does_not_pile_up(tmp_path: Path) -> None:
    """Frames are in cycles, and what is old the collector looks at rarely."""
    size = "int(open('/proc/self/statm').read().split()[1]) * 4096"
    with sync.Session("again", store=str(tmp_path / "store")) as session:
        session.execute(
            "class Held: pass\nheld = Held()\nheld.me, held.it = held, bytearray(b'x' * 8_000_000)",
            check=True,
        )
        made = session.checkpoint()
        for _ in range(3):
            session.restore(made)
        before = session.execute(size).value
        for _ in range(12):
            session.restore(made)
            session.execute("held.it[0] = 1", check=True)
        assert session.execute(size).value - before < 30_000_000  # of 96
        session.execute("import gc\ngc.disable()")
        kept = session.checkpoint()
        session.restore(kept)
        assert session.execute("gc.isenabled()").value is False  # whoever collects, does it himself
