"""What a fork does to an open store, and what a forgotten draft leaves."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model import moment
from holdfast.model.errors import BadInput, UsageError
from holdfast.store import Store, open_store
from holdfast.store.backends.local.holds import living
from holdfast.store.log.catalogue import Catalogue


def in_child(act: Callable[[], None], seconds: float = 20) -> int:
    """Run something in a forked child; its exit code, or -9 when it hung."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -9


def commit(store: Store, subject: str, data: bytes) -> str:
    with store.draft(subject) as draft:
        draft.put("part", data)
        return draft.commit().id


@pytest.mark.parametrize("memory", [False, True])
def test_a_forked_child_can_use_the_store_while_threads_of_its_parent_do(
    tmp_path: Path, memory: bool
) -> None:
    store = open_store("memory://" if memory else tmp_path / "store")
    commit(store, "state/first", b"first")
    stop = threading.Event()

    def work(name: str) -> None:
        while not stop.is_set():
            commit(store, f"state/{name}", os.urandom(2000))

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(3)]
    for thread in threads:
        thread.start()
    try:

        def act() -> None:
            assert store.read("state/first", "part") == b"first"
            commit(store, "state/child", b"child")
            assert store.read("state/child", "part") == b"child"

        assert [in_child(act) for _ in range(8)] == [0] * 8
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert store.verify(deep=True).ok


def test_a_draft_belongs_to_the_process_that_began_it(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    with store.draft("state/x") as draft:
        draft.put("x", os.urandom(3 << 20))

        def act() -> None:
            for use in (lambda: draft.put("y", b"y"), lambda: draft.keep("y"), draft.commit):
                with pytest.raises(UsageError, match="process that began it"):
                    use()

        assert in_child(act) == 0
        draft.put("z", b"z")
        saved = draft.commit()
    assert store.read(saved, "z") == b"z"
    assert store.verify(deep=True).ok


def test_a_forgotten_draft_leaves_nothing_behind(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.draft("state/x").discard()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        draft = store.draft("state/x")
        draft.put("x", os.urandom(2 << 20))
        del draft
    gc.collect()
    assert living(tmp_path / "store" / "holds") == []
    assert not list((tmp_path / "store" / "tmp").iterdir())
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_clock_at_the_end_of_time_is_told_before_anything_is_written() -> None:
    last = moment.to_micros(moment.from_text("9999-12-31T23:59:59.999999Z"))
    with pytest.raises(BadInput, match="not a time"):
        Catalogue(last_time=last).next_time(moment.now())


@pytest.mark.alone
def test_forking_many_parts_takes_no_longer_than_listing_them(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    with store.draft("state/many") as draft:
        for i in range(1500):
            draft.put(f"part/{i}", b"%d" % i)
        made = draft.commit()
    started = time.monotonic()
    forked = store.fork(made, "other")
    assert time.monotonic() - started < 5
    assert store.read(forked, "part/1499") == b"1499"


MANY_THREADS = """
import os, sys, threading
from holdfast.store import open_store
sys.setswitchinterval(1e-6)
store = open_store(sys.argv[1])
bad = 0
for _ in range(30):
    child = os.fork()
    if not child:
        together, seen = threading.Barrier(8), []
        def look():
            together.wait()
            seen.append(store._ledger)
            seen.append(store._leases.ledger)
        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os._exit(len({id(each) for each in seen}) != 1 or len(seen) != 16)
    bad += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(bad)
"""


def test_threads_of_a_forked_child_share_one_ledger(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MANY_THREADS, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "0\n"
