"""Memory ahead of its capture: what was begun with it is gone on with only if it fits."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from tests.session.noted import Noted, parts

from holdfast import sync
from holdfast.model.errors import CaptureFailed, Corrupt
from holdfast.protocol.session_messages import (
    AheadMessage,
    CheckpointCreatedMessage,
    MemoryMessage,
)
from holdfast.session.ahead import Ahead, Begun, Opened
from holdfast.session.captured import Captured
from holdfast.session.memory import Distant, Memories
from holdfast.store import open_store

SETUP = "import numpy as np\na = np.arange(1_000_000)\nb = np.ones(500_000)\nkeep = None"
SLY = """
class Sly:
    def __reduce__(self):
        {act}
        return Sly, ()
keep = Sly()
"""
# No copy of a process with threads is made, however long the capture before took.
HERE = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
# Arrays whose memory has pages in common, of which a thread has all but one at first.
NEIGHBOURS = """
import threading
import numpy as np
class Held: pass
keep = None  # comes before what is held
held = Held()
go, done = threading.Event(), threading.Event()
def show(arrays):
    go.wait()
    held.arrays = arrays
    done.set()
large = np.ones(1_000_000)
del large
arrays = [np.zeros(160_000) + 1 for _ in range(9)]
a = arrays.pop(4)
threading.Thread(target=show, args=(arrays,), daemon=True).start()
del arrays
"""  # with `HERE`: that thread ends
LATE = """
class Late:
    def __init__(self):
        self.array, self.count, self.pending = a, 0, [1]
    def __getstate__(self):
        for each in self.pending:
            self.array[self.count] = each
            self.count += 1
        self.pending = []
        return self.__dict__
keep = Late()
"""


class Watched(Noted):
    """A session's past that knows what was begun ahead, and whether that was of use."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.begun: list[Begun | None] = []

    def go_on(self, begun: Begun, told: AheadMessage, memory: Memories) -> bool:
        good = super().go_on(begun, told, memory)
        self.begun.append(begun if good else None)
        return good

    def used(self) -> list[str]:
        """The parts that the last checkpoint was begun with."""
        begun = self.begun[-1]
        return [] if begun is None or begun.parent is None else sorted(begun.told)


def until_begun(session: Any, history: Watched, change: str) -> Any:
    """A checkpoint that was begun with what came ahead, after a change: on a busy machine the
    capture may be there before anybody has come to that."""
    before = len(history.begun)
    for number in range(2, 52):
        session.execute(change.format(number), check=True)
        made = session.checkpoint()
        if len(history.begun) > before:
            return made
    raise AssertionError("nobody ever comes to it")


def whole(session: Any) -> dict[str, tuple[int, str]]:
    """The same moment, with nothing taken over and nothing ahead."""
    store = open_store("memory://")
    before = session._keeper._history
    history = Noted.of(session, store)
    try:
        made = session.checkpoint()
    finally:
        session._keeper._history = before
    assert history.brought == history.memory
    return parts(store, made.checkpoint)


@pytest.mark.parametrize("url", ["memory://", ""])
def test_what_changed_comes_ahead_and_is_what_it_would_have_been(url: str, tmp_path: Path) -> None:
    store = open_store(url or tmp_path)
    with sync.Session("work", store=store) as session:
        history = Watched.of(session, store)
        session.execute(HERE + SETUP, check=True)
        session.checkpoint()
        assert history.begun == []  # there is nothing to be ahead of
        made = until_begun(session, history, "a[100_000:150_000] = {0}\nb[:7] = {0}")
        assert len(history.used()) == 2
        assert set(history.used()) <= {part.name for part in store.show(made.checkpoint).parts}
        assert 0 < history.brought < history.memory // 4
        session.checkpoint()
        assert len(history.begun) == 1  # nothing changed
        assert parts(store, made.checkpoint) == whole(session)
    with sync.Session.resume("work", store=store) as session:
        assert session.execute("a[100_000] == a[149_999] == b[6] > 1").value
        assert session.execute("int(a[:100_000].sum()), float(b[7:].sum())").value == (
            sum(range(100_000)),
            499_993.0,
        )


@pytest.mark.parametrize(
    "act",
    [
        "a[500_000] = 7", "a[100_000] = 7", "globals().pop('a', None)",
        "a.resize(999_999, refcheck=False) if 'a' in globals() else None",
    ],
)  # fmt: skip
def test_an_object_that_changes_memory_while_it_is_pickled(act: str) -> None:
    store = open_store("memory://")
    with sync.Session("work", store=store) as session:
        session.execute(SETUP, check=True)
        session.checkpoint()
        session.execute("a[100_000:150_000] += 1" + SLY.format(act=act), check=True)
        session.checkpoint()
        session.execute("keep = None\nb[0] = 5", check=True)
        made = session.checkpoint()
        assert parts(store, made.checkpoint) == whole(session)


@pytest.mark.parametrize("other", [700, 100_000])
def test_what_an_object_writes_while_it_is_pickled_belongs_to_its_checkpoint(other: int) -> None:
    """Else its record would speak of values that are not there."""
    with sync.Session("work", store=open_store("memory://")) as session:
        session.execute(HERE + SETUP + LATE, check=True)
        session.checkpoint()
        for number in range(2, 5):
            session.execute(f"a[{other}] = {number}\nkeep.pending.append({number})", check=True)
            made = session.checkpoint()
            session.rollback(made)
            found = session.execute("keep.count, keep.pending, a[: keep.count].tolist()").value
            assert found == (number, [], [*range(1, number + 1)])


# Ways to run code of the user's for a pickle. Each writes to `a`, and counts how often.
WAYS = {
    "a reducer of a class": "class Count:\n    def __reduce__(self):\n        return act(self)",
    "a registered reducer": "import copyreg\nclass Count: pass\ncopyreg.pickle(Count, act)",
    "items of a dict": (
        "class Count(dict):\n"
        "    def items(self):\n"
        "        act(self)\n"
        "        return dict(n=self.n).items()"
    ),
    "a property": (
        "class Count:\n"
        "    @property\n"
        "    def __dict__(self):\n"
        "        return {'n': act(self)[1][0]}\n"
        "    __slots__ = ('n',)"
    ),
    "a reducer deep in a list": (
        "class Count:\n"
        "    def __reduce__(self):\n"
        "        return act(self)\n"
        "deep = keep\n"
        "for _ in range(20_000): deep = [deep]"
    ),
}
ACT = """
def made(n):
    count = Count()
    count.n = n
    return count
def act(count):
    count.n += 1
    a[count.n * 1000] = -count.n
    return made, (count.n,)
{way}
keep = made(0)
"""


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_whatever_runs_for_a_pickle_what_it_writes_belongs_to_it(way: str) -> None:
    with sync.Session("work", store=open_store("memory://")) as session:
        session.execute(HERE + SETUP + ACT.format(way=way), check=True)
        for _ in range(4):
            session.execute("pass", check=True)
            made = session.checkpoint()
        session.rollback(made)
        n, written = session.execute("keep.n, int(a[keep.n * 1000])", check=True).value
        assert n >= 4
        assert written == -n


def test_what_is_written_while_a_neighbour_is_found_is_not_forgotten() -> None:
    """To watch memory with pages that are watched already is to look at those, too: what was copied
    before may be old then, and nobody would find it again."""
    with sync.Session("work", store=open_store("memory://")) as session:
        session.execute(HERE + NEIGHBOURS + SLY.format(act="a[-1] += 1"), check=True)
        session.execute("keep = None", check=True)
        session.checkpoint()
        session.execute("a[-1] = 1\nkeep = Sly()\ngo.set()\ndone.wait()", check=True)
        session.checkpoint()
        session.execute("keep = None", check=True)
        now = session.execute("int(a[-1])").value
        assert now > 1
        session.rollback(session.checkpoint())
        assert session.execute("int(a[-1])").value == now


def test_times_in_records_where_there_were_numbers() -> None:
    with sync.Session("work", store=open_store("memory://")) as session:
        session.execute(HERE + SETUP, check=True)
        session.checkpoint()
        session.execute("a[5] = 7\na.dtype = [('at', 'M8[s]'), ('value', 'i8')]", check=True)
        session.rollback(session.checkpoint())
        assert session.execute("int(a['value'][2]), a['at'][3].item().second").value == (7, 6)


def test_a_capture_that_fails_takes_it_back() -> None:
    store = open_store("memory://")
    with sync.Session("work", store=store, max_checkpoint_bytes=20 << 20) as session:
        history = Watched.of(session, store)
        session.execute(HERE + SETUP, check=True)
        session.checkpoint()
        session.execute("c = [bytes([i]) * 1_000_000 for i in range(25)]", check=True)
        for number in range(50):
            session.execute(f"a[:9] = {number}", check=True)
            with pytest.raises(CaptureFailed, match="more than max_checkpoint_bytes"):
                session.checkpoint()
            if history.begun:
                break
        assert len(history.begun) == 1
        session.execute("c = None", check=True)
        made = until_begun(session, history, "a[20:29] = {}")
        assert len(history.used()) == 1
        assert parts(store, made.checkpoint) == whole(session)


def message(**fields: Any) -> MemoryMessage:
    about = {"request_id": 3, "name": "buffers/b1", "size": 9000, "base": 2, "ahead": True}
    return MemoryMessage(**(about | {"stretches": ((0, 5),)} | fields))  # type: ignore[arg-type]


def fill(begun: Begun, told: AheadMessage, memory: Memories) -> bool:
    begun.told.update((each.name, each) for each in told.memory)
    return True


def captured(told: MemoryMessage, file: int) -> Captured:
    memory = Memories()
    memory.take(told, Distant(os.dup(file), 0))
    return Captured({}, memory, CheckpointCreatedMessage(request_id=3))


@pytest.mark.parametrize(
    ("now", "parent", "fits"),
    [
        (message(), "p", True),
        (message(), "another", False),
        (message(stretches=((0, 6),)), "p", False),
        (message(base=1), "p", False),
        (message(address=8), "p", False),
        (message(name="buffers/b2"), "p", False),
        (message(ahead=False, behind=True), "p", False),
    ],
)
def test_what_it_fits(now: MemoryMessage, parent: str, fits: bool) -> None:
    store = open_store("memory://")
    file = os.memfd_create("ahead")
    os.write(file, b"bytes and more of them")
    draft = store.draft("session/x")
    ahead = Ahead(lambda: Opened(True, Begun(draft, "p")), fill)
    ahead.begin()
    ahead.take(AheadMessage(request_id=3, memory=(message(),)), os.dup(file))
    assert ahead._work is not None
    ahead._work.result()  # what nobody has come to is not waited for
    found = ahead.begun(captured(now, file), parent)
    assert (found is not None) == fits
    if found is not None:
        found.draft.put("x", b"it is open")
        found.draft.commit()
    assert ahead.begun(captured(now, file), parent) is None  # it is somebody's already


def test_what_was_begun_without_memory_is_of_use_too() -> None:
    store = open_store("memory://")
    ahead = Ahead(lambda: Opened(True, Begun(store.draft("session/x"), None)), fill)
    assert ahead.begin().result().there
    found = ahead.begun(Captured({}, Memories(), CheckpointCreatedMessage(request_id=3)), None)
    assert found is not None
    found.draft.discard()


def test_what_comes_to_nothing_is_not_used() -> None:
    store = open_store("memory://")
    file = os.memfd_create("ahead")
    ahead = Ahead(lambda: Opened(True, Begun(store.draft("session/x"), None)), lambda *_: False)
    ahead.begin()
    ahead.take(AheadMessage(request_id=3), os.dup(file))
    with pytest.raises(Corrupt, match="nobody"):  # once is all there may be
        ahead.take(AheadMessage(request_id=3), os.dup(file))
    assert ahead._work is not None
    ahead._work.result()
    assert ahead.begun(captured(message(), file), None) is None


def test_memory_that_nobody_asked_for() -> None:
    file = os.memfd_create("ahead")
    with pytest.raises(Corrupt, match="nobody"):
        Ahead(lambda: Opened(True), fill).take(AheadMessage(request_id=3), file)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(file)


@pytest.mark.parametrize("comes", [True, False])
def test_what_nobody_asks_for_is_given_up(comes: bool) -> None:
    store = open_store("memory://")
    go = threading.Event()
    made: list[Begun] = []

    def begin() -> Opened:
        go.wait()
        made.append(Begun(store.draft("session/x"), None))
        return Opened(True, made[-1])

    file = os.memfd_create("ahead")
    ahead = Ahead(begin, fill)
    work: Future[Any] = ahead.begin()
    if comes:
        ahead.take(AheadMessage(request_id=3), file)
        assert ahead._work is not None
        work = ahead._work
    else:
        os.close(file)
    while not work.running():
        pass
    ahead.give_up()
    go.set()
    work.result()
    ahead.give_up()  # twice is as good as once
    until = time.monotonic() + 10
    while not made[0].draft._done and time.monotonic() < until:
        time.sleep(0.001)  # that is seen to just after the result is there
    with pytest.raises(Exception, match="finished"):
        made[0].draft.put("x", b"")
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(file)


def test_memory_ahead_of_what_is_no_file() -> None:
    with pytest.raises(Corrupt, match="not there"):
        Memories().take(message(), Distant.memory_of(os.getpid()))
