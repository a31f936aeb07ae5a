"""Leases: who may advance a subject, on a directory and in memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.model import moment
from holdfast.model.errors import (
    BadInput,
    Conflict,
    HoldfastError,
    LeaseLost,
    Owned,
    Unsupported,
    UsageError,
)
from holdfast.model.owner import Owner
from holdfast.model.subject import Subject
from holdfast.store import Store, open_store
from holdfast.store.backends.contract import Pulse
from holdfast.store.backends.memory import MemoryBackend
from holdfast.store.keys import load_keyring
from holdfast.store.leases import Watch
from holdfast.store.log.entries import Own
from holdfast.store.retention import Last
from holdfast.testing.power import powered

SUBJECT = "session/work"
Pair = tuple[Store, Store]


@pytest.fixture(params=["directory", "memory"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Two who use the same store."""
    if request.param == "memory":
        backend = MemoryBackend()
        yield Store(backend, load_keyring()), Store(backend, load_keyring())
    else:
        with open_store(tmp_path / "store") as ours, open_store(tmp_path / "store") as theirs:
            yield ours, theirs


def save(store: Store, text: str = "x", **about: object) -> str:
    with store.draft(SUBJECT, **about) as draft:  # type: ignore[arg-type]
        draft.put("part", text.encode())
        return draft.commit().id


def test_only_the_owner_advances_a_subject(pair: Pair) -> None:
    ours, theirs = pair
    first, second = save(ours, "first"), save(ours, "second")
    with ours.lease(SUBJECT, owner="us", url="http://here:1") as lease:
        attempts: list[Callable[[], object]] = [
            lambda: save(theirs),
            lambda: theirs.restore(first),
            lambda: theirs.rollback(SUBJECT),
            lambda: theirs.undo(SUBJECT),
            lambda: theirs.delete(first),
            lambda: save(ours),  # without saying that it is the owner
        ]
        for attempt in attempts:
            with pytest.raises(Owned, match=r"us \(http://here:1\)") as caught:
                attempt()
            assert (caught.value.owner, caught.value.url) == ("us", "http://here:1")
            assert isinstance(caught.value, Conflict)
        assert ours.head(SUBJECT).id == second  # type: ignore[union-attr]
        save(ours, "third", lease=lease)
        assert ours.restore(first, lease=lease).id == first
        ours.rollback(SUBJECT, to=second, lease=lease)
        ours.undo(SUBJECT, lease=lease)
        ours.delete(second, lease=lease)
    theirs.restore(first)
    save(theirs)


def test_everything_else_may_be_done_by_anybody(pair: Pair) -> None:
    ours, theirs = pair
    first = save(ours, "first")
    with ours.lease(SUBJECT) as lease:
        save(ours, "second", lease=lease)
        assert theirs.read(first, "part") == b"first"
        theirs.tag(first, "good")
        theirs.fork(first, "other")
        theirs.untag(first, "good")
        assert theirs.verify(deep=True).ok
        save(ours, "third", lease=lease)


def test_others_prune_nothing_of_an_owned_subject(pair: Pair) -> None:
    ours, theirs = pair
    with ours.lease(SUBJECT, owner="us") as lease:
        made = [save(ours, f"{i}", lease=lease) for i in range(4)]
        for i in range(4):
            with theirs.draft("state/free") as draft:
                draft.put("part", b"%d" % i)
                draft.commit()
        other = [one.id for one in theirs.list("state/free")]
        for report in (theirs.prune(Last(1), dry_run=True), theirs.prune(Last(1))):
            assert [one.id for one in report.removed] == other[1:]
            assert report.owned == (SUBJECT,)
            assert {why for one, why in report.kept if one.id in made[:3]} == {"owned by us"}
        assert [one.id for one in ours.list(SUBJECT)] == made[::-1]
        report = ours.prune(Last(2))  # the owner itself
        assert ([one.id for one in report.removed], report.owned) == ([made[1], made[0]], ())
        save(ours, "on", lease=lease)
    assert len(theirs.prune(Last(1)).removed) == 2


def test_a_dead_owners_subject_is_pruned(pair: Pair) -> None:
    ours, theirs = pair
    lease = ours.lease(SUBJECT, ttl=0.5)
    made = [save(ours, f"{i}", lease=lease) for i in range(3)]
    lease._beat.stop()  # as if its process had been killed
    assert len(theirs.prune(Last(1), dry_run=True).removed) == 2
    assert [one.id for one in theirs.prune(Last(1)).removed] == [made[1], made[0]]


def test_a_subject_has_one_owner_at_a_time(pair: Pair) -> None:
    ours, theirs = pair
    lease = ours.lease(SUBJECT, owner="us")
    with pytest.raises(Owned, match="us"):
        theirs.lease(SUBJECT, owner="them")
    owner = theirs.owner(SUBJECT)
    assert owner is not None
    assert (owner.name, owner.token, str(owner.subject)) == ("us", lease.token, SUBJECT)
    lease.release()
    lease.release()
    assert theirs.owner(SUBJECT) is None
    later = theirs.lease(SUBJECT, owner="them")
    assert later.token > lease.token
    assert f":{os.getpid()}" in ours.lease("session/other").owner


def test_a_lease_is_waited_for(pair: Pair) -> None:
    ours, theirs = pair
    lease = ours.lease(SUBJECT, ttl=2)
    threading.Timer(0.3, lease.release).start()
    with theirs.lease(SUBJECT, wait=20) as later:
        assert later.token > lease.token


def test_an_owner_that_is_silent_for_too_long_is_replaced_and_fenced(pair: Pair) -> None:
    ours, theirs = pair
    stalled = ours.lease(SUBJECT, owner="stalled", ttl=0.3)
    draft = ours.draft(SUBJECT, lease=stalled)
    draft.put("part", b"too late")
    later = theirs.lease(SUBJECT, owner="later", wait=20)
    mine = save(theirs, "theirs", lease=later)
    with pytest.raises(LeaseLost, match="later"):
        draft.commit()
    with pytest.raises(LeaseLost):
        ours.restore(mine, lease=stalled)
    with pytest.raises(LeaseLost):
        stalled.renew()
    assert stalled.lost
    stalled.release()  # which takes nothing from the later one
    assert theirs.owner(SUBJECT).token == later.token  # type: ignore[union-attr]
    assert [one.id for one in ours.list()] == [mine]


def test_an_owner_that_wakes_up_before_anybody_came_goes_on(pair: Pair) -> None:
    ours, _ = pair
    lease = ours.lease(SUBJECT, ttl=0.05)
    time.sleep(0.2)
    lease.renew()
    save(ours, lease=lease)
    assert not lease.lost


def test_in_the_background_a_lease_lives_on(pair: Pair) -> None:
    ours, theirs = pair
    with ours.lease(SUBJECT, owner="us", ttl=3) as lease:  # nobody stands still so long
        with pytest.raises(Owned):
            theirs.lease(SUBJECT, wait=4)
        assert lease.seconds_left > 0
        save(ours, lease=lease)


def test_whoever_loses_a_lease_is_told(pair: Pair) -> None:
    ours, theirs = pair
    told: list[HoldfastError] = []
    lease = ours.lease(SUBJECT, ttl=0.5).keep(told.append)
    theirs._ledger.append(lambda now: _taken_over(theirs))
    deadline = time.monotonic() + 20
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [error.kind for error in told] == ["lease_lost"]
    assert lease.lost
    with pytest.raises(LeaseLost):
        ours.draft(SUBJECT, lease=lease)


def test_whoever_cannot_renew_is_told_which_lease(pair: Pair) -> None:
    ours, _ = pair
    told: list[HoldfastError] = []
    lease = ours.lease(SUBJECT, ttl=0.5)
    lease._beat.renew = _unreachable  # type: ignore[method-assign]
    lease.keep(told.append)
    deadline = time.monotonic() + 20
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [error.kind for error in told] == ["lease_lost"]
    assert SUBJECT in str(told[0])
    with pytest.raises(LeaseLost, match="could not be renewed in time"):
        ours.draft(SUBJECT, lease=lease)


def _unreachable() -> None:
    raise HoldfastError("the store does not answer")


def _taken_over(store: Store):  # type: ignore[no-untyped-def]
    return Own(subject=SUBJECT, owner="thief", url=None, beat=b"b" * 16, lasts=1000, time=1), b""


def test_an_owner_survives_the_folding_of_the_log(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as ours:
        with ours.lease("session/gone"):
            pass
        lease = ours.lease(SUBJECT, owner="us")
        for number in range(7):
            save(ours, os.urandom(450_000).hex(), lease=lease, reason=str(number))
        ours.prune(Last(1))
        assert list((tmp_path / "store/log").glob("*.snap"))
        with open_store(tmp_path / "store") as later:
            assert later.owner(SUBJECT) == lease.record
            assert later.owner("session/gone") is None
        save(ours, "on", lease=lease)


def test_a_lease_is_for_one_subject_and_one_process(store: Store) -> None:
    lease = store.lease(SUBJECT)
    with pytest.raises(UsageError, match="session/other"):
        store.draft("session/other", lease=lease)
    pid = os.fork()
    if pid == 0:
        try:
            lease.release()
            lease.renew()
        except UsageError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    save(store, lease=lease)


@pytest.mark.parametrize("arguments", [{"ttl": 0}, {"ttl": -1}, {"wait": -1}])
def test_impossible_leases_are_refused(store: Store, arguments: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        store.lease(SUBJECT, **arguments)
    store.lease(SUBJECT).release()


OWNER = (
    "import sys, time; from holdfast.store import open_store\n"
    "with open_store(sys.argv[1]).lease(sys.argv[2], owner='the other', ttl=float(sys.argv[3])):\n"
    "    print('mine', flush=True); time.sleep(60)"
)


@pytest.fixture
def other_owner(place: Path) -> Iterator[Callable[[float], subprocess.Popen[str]]]:
    """Another process that owns the subject."""
    running = []

    def start(ttl: float) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(place), SUBJECT, str(ttl)],
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_an_owner_that_died_is_replaced_at_once(store: Store, place: Path, other_owner) -> None:
    process = other_owner(60.0)
    with pytest.raises(Owned, match="the other"):
        save(store)
    process.send_signal(signal.SIGKILL)
    process.wait()
    began = time.monotonic()
    save(store)
    store.lease(SUBJECT).release()
    assert time.monotonic() - began < 30  # not the lease's minute
    assert list((place / "leases").iterdir()) == []


def test_an_owner_that_was_stopped_is_replaced_after_its_time(store: Store, other_owner) -> None:
    process = other_owner(0.6)
    process.send_signal(signal.SIGSTOP)
    with store.lease(SUBJECT, owner="us", wait=20) as lease:
        process.send_signal(signal.SIGCONT)
        save(store, lease=lease)
        assert store.owner(SUBJECT).name == "us"  # type: ignore[union-attr]


KEEPER = """
import sys
from holdfast.store import open_store
store = open_store(sys.argv[1])
leases = [store.lease(f"state/{each}", ttl=3.0) for each in range(12)]
for lease in leases:
    lease.keep(lambda error: print(error, flush=True))
print("kept", flush=True)
sys.stdin.readline()
for lease in leases:
    lease.check()
print("all of them", flush=True)
"""


def test_owners_that_stood_still_go_on(place: Path) -> None:
    """When nobody took their place; also those that wake up just when their time is over."""
    process = subprocess.Popen(
        [sys.executable, "-c", KEEPER, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "kept\n"
    time.sleep(0.5)
    for seconds in (1.95, 2.25):
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        time.sleep(1.2)
    said, _ = process.communicate("now\n", timeout=20)
    assert said == "all of them\n"


# -- what is seen of an owner, without any clock


OWNER_RECORD = Owner(
    subject=Subject.parse(SUBJECT),
    name="them",
    url=None,
    token=3,
    since=moment.from_micros(0),
    lasts=15,
    beat=b"b" * 16,
)


def test_silence_is_measured_from_the_first_look() -> None:
    watch, quiet = Watch(), Pulse(b"1", vouched=False)
    assert watch.look(OWNER_RECORD, quiet, 100) == "unclear"
    assert watch.look(OWNER_RECORD, quiet, 114.9) == "unclear"
    assert watch.look(OWNER_RECORD, quiet, 115) == "gone"


def test_another_nonce_is_life_and_the_time_begins_anew() -> None:
    watch = Watch()
    assert watch.look(OWNER_RECORD, Pulse(b"1", vouched=False), 100) == "unclear"
    assert watch.look(OWNER_RECORD, Pulse(b"2", vouched=False), 120) == "alive"
    assert watch.look(OWNER_RECORD, Pulse(b"2", vouched=False), 134) == "unclear"
    assert watch.look(OWNER_RECORD, Pulse(b"2", vouched=False), 135) == "gone"


def test_an_owner_known_to_exist_is_alive_until_its_time_is_over() -> None:
    watch, vouched = Watch(), Pulse(b"1", vouched=True)
    assert watch.look(OWNER_RECORD, vouched, 100) == "alive"
    assert watch.look(OWNER_RECORD, vouched, 115) == "gone"
    assert watch.look(OWNER_RECORD, None, 116) == "gone"


@pytest.mark.timeout(120)
def test_a_directory_of_somebody_elses_file_system_has_no_leases(tmp_path: Path) -> None:
    """A real mount of which nobody can tell whether other machines see its locks: it is said so,
    and everything else works."""
    with powered(tmp_path / "mount") as power, open_store(power.root / "store") as store:
        with pytest.raises(Unsupported, match="fuse") as caught:
            store.lease("state/a")
        assert "object store" in (caught.value.hint or "")
        with store.draft("state/a") as draft:
            draft.put("part", b"x")
            draft.commit()
        assert store.read("state/a", "part") == b"x"


@pytest.mark.timeout(120)
def test_writing_to_a_network_directory_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A real mount of which nobody can tell whether other machines see what is appended."""
    with powered(tmp_path / "mount") as power, caplog.at_level("WARNING", "holdfast.store"):
        for _ in range(2):
            with open_store(power.root / "store") as store:
                assert store.list() == [] or caplog.messages
                for _ in range(2):
                    with store.draft("state/a") as draft:
                        draft.commit()
        (said,) = caplog.messages
    place = power.root / "store"
    assert said.startswith(f"only one machine may write to the store at {place}: on a file system")
    assert "object store" in said
    caplog.clear()
    with open_store(tmp_path / "store") as store, store.draft("state/a") as draft:
        draft.commit()
    assert caplog.messages == []
