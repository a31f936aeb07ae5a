"""Holds: marks that an operation is in progress, kept alive by the kernel."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.store import Store
from holdfast.store.backends.local.holds import Holds, living
from holdfast.testing.processes import running


def test_the_living_are_listed_and_the_released_are_not(tmp_path: Path) -> None:
    holds = Holds(tmp_path)
    one, other = holds.take(7), holds.take(9)
    assert sorted(living(tmp_path)) == sorted([(7, one.nonce), (9, other.nonce)])
    one.release()
    one.release()
    assert living(tmp_path) == [(9, other.nonce)]
    other.release()
    assert living(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_used_again(tmp_path: Path) -> None:
    holds = Holds(tmp_path)
    one = holds.take(7)
    one.release()
    again = holds.take(70)
    assert living(tmp_path) == [(70, one.nonce)]
    assert len(list(tmp_path.iterdir())) == 1
    one.release()  # a second time, when it is no longer its own
    assert living(tmp_path) == [(70, again.nonce)]
    again.release()
    holds.close()
    assert list(tmp_path.iterdir()) == []


def test_a_busy_writer_never_looks_as_if_it_needed_what_is_long_gone(tmp_path: Path) -> None:
    """A new name is dear, so it is given now and then; until then more is protected, not less."""
    holds = Holds(tmp_path)
    names = set()
    for seq in range(1, 200):
        hold = holds.take(seq)
        ((found, _),) = living(tmp_path)
        assert seq - 32 <= found <= seq
        names.add(found)
        hold.release()
    assert len(names) < 10
    hold = holds.take(3)  # a log that was folded may begin again at a smaller number
    assert [found for found, _ in living(tmp_path)] == [3]
    hold.release()


@pytest.mark.parametrize("way", ["swept", "deleted", "replaced"])
def test_a_file_that_is_gone_is_not_used_again(tmp_path: Path, way: str) -> None:
    holds = Holds(tmp_path)
    one = holds.take(7)
    one.release()
    if way == "swept":
        assert living(tmp_path) == []
    else:
        (path,) = tmp_path.iterdir()
        path.unlink()
        if way == "replaced":
            path.write_bytes(b"")
    again = holds.take(9)
    assert again.nonce != one.nonce
    assert living(tmp_path) == [(9, again.nonce)]


def test_a_file_that_somebody_is_sweeping_up_is_not_waited_for(tmp_path: Path) -> None:
    holds = Holds(tmp_path)
    one = holds.take(7)
    one.release()
    (path,) = tmp_path.iterdir()
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holds.take(9).nonce != one.nonce


def test_many_at_once_leave_few_files(tmp_path: Path) -> None:
    holds = Holds(tmp_path)
    taken = [holds.take(1) for _ in range(20)]
    for one in taken:
        one.release()
    assert len(list(tmp_path.iterdir())) == 4
    del one, taken, holds
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_threads_never_share_a_hold(tmp_path: Path) -> None:
    holds = Holds(tmp_path)
    held: set[bytes] = set()
    failures: list[bytes] = []

    def work(number: int) -> None:
        for _ in range(200):
            hold = holds.take(number)
            if hold.nonce in held:
                failures.append(hold.nonce)
            held.add(hold.nonce)
            if number == 0:
                living(tmp_path)
            held.discard(hold.nonce)
            hold.release()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert failures == []
    assert living(tmp_path) == []


def test_the_dead_are_swept_up_however_they_died(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from holdfast.store.backends.local.holds import Holds\n"
        "hold = Holds(Path(sys.argv[1])).take(3); print(hold.nonce.hex(), flush=True)\n"
        "time.sleep(60)"
    )
    with running(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        nonce = bytes.fromhex(process.stdout.readline().strip())
        assert living(tmp_path) == [(3, nonce)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert living(tmp_path) == []
        assert list(tmp_path.iterdir()) == []


def test_a_forked_child_does_not_keep_its_parents_hold(tmp_path: Path) -> None:
    holds = Holds(tmp_path)
    holds.take(5).release()
    hold = holds.take(1)
    ready, begin = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        hold.release()  # must not take the parent's away
        holds.close()
        os.write(ready[1], b"x")
        os.read(begin[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        assert living(tmp_path) == [(1, hold.nonce)]
        hold.release()
        assert living(tmp_path) == []
    finally:
        os.write(begin[1], b"x")
        os.waitpid(child, 0)
        for fd in (*ready, *begin):
            os.close(fd)


def test_strange_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert living(tmp_path) == []
    assert (tmp_path / "notes.txt").exists()


def test_operations_take_holds_and_give_them_back(store: Store, save, place: Path, noise) -> None:
    checkpoint = save(noise(2_000_000), "segment")
    draft = store.draft("state/x")
    assert len(living(place / "holds")) == 1
    draft.discard()
    store.read(checkpoint, "part")
    store.map(checkpoint, "part", verify="first").close()
    store.verify(deep=True)
    store.prune()
    assert living(place / "holds") == []
