"""The blocking twins: the same members, derived by rule; sessions are served between calls."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.bundle import Bundle
from holdfast.client import Process, Sandbox, Stream
from holdfast.client.files import Files
from holdfast.model.errors import NotFound, UsageError
from holdfast.session import CellFailed, Session, SessionPool
from holdfast.store import open_store
from holdfast.testing.waiting import eventually


def test_the_whole_cycle() -> None:
    store = open_store("memory://")
    with sync.Session(name="plain", store=store) as session:
        assert session.execute("x = 1\nx + 1").value == 2
        cp = session.checkpoint(reason="one")
        session.execute("x = 5")
        other = session.fork("copy")
        assert isinstance(other, sync.Session)
        assert other.execute("x").value == 5
        other.shutdown()
        assert session.restore(cp)["x"].outcome == "exact"
        assert session.execute("x").value == 1
        session.execute("x = 2")
        session.checkpoint()
        session.rollback()
        assert session.execute("x", timeout=5).value == 1
        assert session.name == "plain"
        assert session.alive
    assert not session.alive
    again = sync.Session.resume("copy", store=store)
    assert again.execute("x").value == 5
    again.shutdown()
    with pytest.raises(NotFound):
        sync.Session.resume("nobody", store=store)


def test_streaming_and_interrupting(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with sync.Session(store="memory://") as session:
        stream = session.stream("for i in range(3): print(i)\n'end'")
        assert "".join(event.text for event in stream) == "0\n1\n2\n"
        assert stream.result.value == "end"

        def interrupt() -> None:
            eventually(begun.exists, "the cell runs")
            session.interrupt()

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        cell = f"open({str(begun)!r}, 'w').close()\nwhile True: pass"
        assert session.execute(cell).error.type == "KeyboardInterrupt"
        interrupting.join()


def test_output_is_drained_between_calls(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with sync.Session(store="memory://") as session:
        session.execute(
            "import threading, time\ndone = threading.Event()\n"
            "def chatter():\n    print('x' * 300_000)\n    done.set()\n"
            f"    open({str(said)!r}, 'w').close()\n"
            "threading.Timer(0.1, chatter).start()"
        )
        eventually(said.exists, "it has said all, though nobody called anything")
        assert session.execute("done.is_set()").value is True


@pytest.mark.parametrize(
    ("source", "twin"),
    [
        (Session, sync.Session),
        (SessionPool, sync.SessionPool),
        (Sandbox, sync.Sandbox),
        (Process, sync.Process),
        (Stream, sync.Stream),
        (Files, sync.Files),
        (Bundle, sync.Bundle),
    ],
)
def test_every_public_member_is_there_with_its_signature(source, twin) -> None:
    for name, member in vars(source).items():
        if name.startswith("_"):
            continue
        assert hasattr(twin, name) or isinstance(member, property), name
        if inspect.isfunction(member):
            assert inspect.signature(getattr(twin, name)) == inspect.signature(member)


def test_a_transaction() -> None:
    with sync.Session(store="memory://") as session:
        session.execute("x = 1")
        with pytest.raises(CellFailed), session.transaction() as transaction:
            session.execute("x = 2\n1 / 0")
        assert transaction.rolled_back
        assert session.execute("x").value == 1
        with session.transaction():
            session.execute("x = 3")
        assert session.execute("x").value == 3


def test_a_pool() -> None:
    with sync.SessionPool(min_idle=1, max_sessions=2, warmup="y = 5", store="memory://") as pool:
        session = pool.acquire("one")
        assert isinstance(session, sync.Session)
        assert session.execute("y").value == 5
        with pool.session() as other:
            assert isinstance(other, sync.Session)
            assert other.execute("y + 1").value == 6
        assert pool.in_use == 1
        pool.release(session)
        assert not session.alive


def test_a_callback_that_would_wait_for_ever() -> None:
    with sync.Session(store="memory://") as session:
        caught = []

        def answer(prompt: str) -> str:
            try:
                session.execute("1")
            except UsageError as error:
                caught.append(error)
            return "answered"

        assert session.execute("input()", on_input=answer).value == "answered"
        assert "callbacks" in str(caught[0])


def test_a_dead_worker() -> None:
    with sync.Session(store="memory://") as session:
        session.execute("x = 3")
        session.checkpoint()
        os.kill(session.pid, 9)
        eventually(lambda: not session.alive, "it is noticed")
        session.restore()
        assert session.execute("x").value == 3


def test_checking_and_showing() -> None:
    with sync.Session(name="plain", store="memory://") as session:
        assert repr(session) == f"<Session session/plain running pid {session.pid}>"
        assert session.execute("  1\n  2", check=True).value == 2
        with pytest.raises(CellFailed, match="ZeroDivisionError"):
            session.execute("1 / 0", check=True)
        stream = session.stream("1")
        assert list(stream) == []
        assert repr(stream).endswith("<Result 1>>")
    assert repr(session) == "<Session session/plain shut down>"
    assert repr(object.__new__(sync.Session)) == "<Session>"


def test_threads_that_begin_at_once_share_the_loop() -> None:
    # In a process of its own: here the loop has long been there.
    code = """
import threading
from holdfast.sync.portal import portal
at_once, found = threading.Barrier(8), []
def ask():
    at_once.wait()
    found.append(portal())
threads = [threading.Thread(target=ask) for _ in range(8)]
[each.start() for each in threads]
[each.join() for each in threads]
assert len(set(map(id, found))) == 1 and len(found) == 8
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_fork_of_the_host_has_sessions_of_its_own() -> None:
    code = """
import os
from holdfast import sync
from holdfast.bundle import Bundle
from holdfast.client import Process, Sandbox, Stream
from holdfast.client.files import Files
with sync.Session(store="memory://") as before:
    assert before.execute("1").value == 1
    child = os.fork()
    if child == 0:
        with sync.Session(store="memory://") as session:
            os._exit(session.execute("6 * 7").value)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert before.execute("2").value == 2
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


LEFT_OPEN = """
import sys
from holdfast import sync
from holdfast.model.errors import StorageFull
from holdfast.store import open_store
def full(*args, **options):
    raise StorageFull("no room")
store, automatic, ending = sys.argv[1:]
every = {"cell": "cell", "clock": 1000.0, "never": None}[automatic]
session = sync.Session("left", store=open_store(store), auto_checkpoint=every).start()
if ending == "full":
    session._history.save = full
for number in range(3):
    while True:
        try:
            session.execute(f"x = {number}")
            break
        except StorageFull:
            pass  # of the cell before: this one has not run
if ending == "raises":
    raise ValueError("mine")
if ending == "forgets":
    del session
"""


def left_open(store: Path, automatic: str, ending: str) -> subprocess.CompletedProcess[str]:
    """A program that ends without ending its session."""
    return subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, str(store), automatic, ending],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("automatic", "ending"),
    [("cell", "ends"), ("clock", "ends"), ("cell", "raises"), ("clock", "forgets")],
)
def test_what_is_due_is_saved_when_a_program_ends_without_shutdown(
    tmp_path: Path, automatic: str, ending: str
) -> None:
    done = left_open(tmp_path / "store", automatic, ending)
    assert done.returncode == (ending == "raises")
    assert "holdfast:" not in done.stderr
    with sync.Session.resume("left", store=str(tmp_path / "store")) as again:
        assert again.execute("x").value == 2


def test_what_could_not_be_saved_when_a_program_ends_is_told(tmp_path: Path) -> None:
    done = left_open(tmp_path / "store", "cell", "full")
    assert "holdfast: what session/left ran last is lost: no room" in done.stderr
    done = left_open(tmp_path / "another", "never", "full")
    assert (done.returncode, done.stderr) == (0, "")  # nothing was to be saved by itself


def test_a_fork_of_the_host_leaves_its_sessions_alone(tmp_path: Path) -> None:
    code = f"""
import os, sys
from holdfast import sync
session = sync.Session("left", store={str(tmp_path / "store")!r}, auto_checkpoint=1000.0).start()
session.execute("x = 1")
child = os.fork()
if child == 0:
    sys.exit(7)  # at once: its parent's loop does not run here
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
session.execute("x = 2")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=25)
    with sync.Session.resume("left", store=str(tmp_path / "store")) as again:
        assert again.execute("x").value == 2
        assert len(again.list()) == 1
