"""Holds: marks that an operation is in progress, kept alive by the kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from holdfast.store import Store
from holdfast.store.backends.holds import LocalHold, living


def test_the_living_are_listed_and_the_released_are_not(tmp_path: Path) -> None:
    one, other = LocalHold(tmp_path, 7), LocalHold(tmp_path, 9)
    assert sorted(living(tmp_path)) == sorted([(7, one.nonce), (9, other.nonce)])
    one.release()
    one.release()
    assert living(tmp_path) == [(9, other.nonce)]
    other.release()
    assert list(tmp_path.iterdir()) == []


def test_the_dead_are_swept_up_however_they_died(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from holdfast.store.backends.holds import LocalHold\n"
        "hold = LocalHold(Path(sys.argv[1]), 3); print(hold.nonce.hex(), flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen(
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
    hold = LocalHold(tmp_path, 1)
    ready, begin = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        hold.release()  # must not take the parent's away
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
