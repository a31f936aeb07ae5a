"""Two stores at one place, each step of the one between two steps of the other.

What eight processes and a kill find now and then, shown one by one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from blake3 import blake3

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Conflict
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.backends.local.loglock import LogLock
from holdfast.store.collect import _Collector, _condemn
from holdfast.store.doubts import Doubts
from holdfast.store.keys import load_keyring
from holdfast.store.log.frames import Frame, Signed
from holdfast.store.opening import open_store
from holdfast.store.retention import Last, Policy
from holdfast.store.store import Store

MEDIUM = 900_000  # goes into the log
LARGE = 3_000_000  # goes into a pack
FOLD = 5 * 1024 * 1024  # a log of that length is folded


class Pair(NamedTuple):
    """Two who use the same store."""

    ours: Store
    theirs: Store


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with open_store(tmp_path / "store") as ours, open_store(tmp_path / "store") as theirs:
        yield Pair(ours, theirs)


def content(seed: str, size: int) -> bytes:
    return blake3(seed.encode()).digest(length=size)


def save(store: Store, subject: str, data: bytes) -> Checkpoint:
    with store.draft(subject) as draft:
        draft.put("data", data, split="pages")
        return draft.commit()


def lengthen(store: Store) -> None:
    """Make the log so long that the next prune folds it."""
    for number in range(FOLD // MEDIUM + 1):
        save(store, f"state/long-{number}", content(f"long {number}", MEDIUM))


def anew(store: Store) -> Store:
    return open_store(store.url, create=False)


def test_a_pack_that_a_dead_writer_left_is_not_referred_to(pair: Pair) -> None:
    data = content("left", LARGE)
    draft = pair.theirs.draft("state/dead")
    draft.put("data", data, split="pages")
    draft._sink.finish()  # as far as a writer gets that dies before its entry
    draft.discard()
    assert pair.ours.verify(deep=True).ok  # which looks at the pack, too
    pair.theirs.prune()
    saved = save(pair.ours, "state/mine", data)
    with anew(pair.ours) as later:
        assert later.read(saved, "data") == data
        assert later.verify(deep=True).ok


def test_a_pack_that_is_collected_while_it_is_verified_is_no_damage(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file stays open for whoever reads it, so only half of the looks at it find nothing."""
    draft = pair.theirs.draft("state/dead")
    draft.put("data", content("left", LARGE), split="pages")
    draft._sink.finish()
    draft.discard()
    learn = pair.ours._ledger.library.learn

    def learn_too_late(volumes: Iterable[bytes]) -> None:
        pair.theirs.prune()
        learn(volumes)

    monkeypatch.setattr(pair.ours._ledger.library, "learn", learn_too_late)
    found = pair.ours.verify(deep=True)
    assert found.problems == ()
    assert found.bytes_read > LARGE
    assert not list(Path(pair.ours.url).glob("packs/*.pack"))


def test_what_was_collected_long_ago_is_not_referred_to(pair: Pair) -> None:
    """Our index knows the tables of packs that are gone; a snapshot must not make us forget why."""
    half, other = content("half", LARGE // 2), content("other", LARGE)
    save(pair.ours, "state/a", half + other)
    save(pair.ours, "state/a", half + content("new", 10))  # the pack is sparse now
    pair.theirs.prune(Last(1))  # moves the half into a second pack
    pair.ours.read("state/a", "data")  # we know that pack
    save(pair.theirs, "state/a", content("third", 1000))
    lengthen(pair.theirs)
    pair.theirs.prune(Last(1))  # the second pack goes
    pair.theirs.prune(Last(1))
    lengthen(pair.theirs)
    pair.theirs.prune(Last(1))
    saved = save(pair.ours, "state/b", half)
    with anew(pair.ours) as later:
        assert later.read(saved, "data") == half
        assert later.verify(deep=True).ok


def test_a_kept_part_is_found_where_a_collector_moved_it(pair: Pair) -> None:
    data = content("kept", MEDIUM)
    save(pair.ours, "state/a", data)
    lengthen(pair.ours)
    with pair.ours.draft("state/a") as draft:
        draft.keep("data")
        pair.theirs.prune(Last(1))  # folds the log; our hold keeps the old place
        kept = draft.commit()
    pair.theirs.prune(Last(1))
    with anew(pair.ours) as later:
        assert later.read(kept, "data") == data
        assert later.verify(deep=True).ok


def test_a_volume_condemned_long_ago_stays_for_those_who_read_what_is_dropped_now(
    pair: Pair,
) -> None:
    """A collector that died between condemning and moving leaves such a volume."""
    data = content("read", LARGE)
    saved = save(pair.ours, "state/a", data)
    (volume,) = pair.theirs._ledger.refresh().live_volumes()
    pair.theirs._ledger.append(lambda now: _condemn([volume], now))
    pair.ours.list()  # knows that nothing new may refer to the volume
    with pair.ours.open(saved, "data") as stream:
        first = stream.read(1000)
        pair.theirs.delete(saved)
        assert pair.theirs.prune().pending_bytes > LARGE
        assert first + stream.read() == data
    assert pair.theirs.prune().reclaimed_bytes > LARGE


def test_a_stream_goes_on_while_the_log_is_folded_under_it(pair: Pair) -> None:
    data = content("streamed", MEDIUM)
    saved = save(pair.ours, "state/a", data)
    lengthen(pair.ours)
    with pair.ours.open(saved, "data") as stream:
        first = stream.read(1000)
        pair.theirs.prune(Last(1))
        pair.ours.list()
        assert first + stream.read() == data


def snapshot(store: Store) -> None:
    """What a collector writes last, with whatever others committed since it began a segment."""
    _Collector(store._ledger, Doubts())._snapshot()


def test_chunks_are_found_in_a_segment_that_a_snapshot_covers(pair: Pair) -> None:
    data = content("covered", MEDIUM)
    saved = save(pair.ours, "state/a", data)
    snapshot(pair.theirs)
    with anew(pair.ours) as later:
        assert later.read(saved, "data") == data
        assert later.verify(deep=True).ok


def test_chunks_of_a_dropped_commit_are_found_by_whoever_comes_later(pair: Pair) -> None:
    """Others refer to them, and the snapshot does not speak of the commit."""
    data = content("shared", MEDIUM)
    first = save(pair.ours, "state/first", data)
    second = save(pair.ours, "state/second", data)
    pair.ours.delete(first)
    snapshot(pair.theirs)
    with anew(pair.ours) as later:
        assert later.read(second, "data") == data
        lengthen(later)
        later.prune()  # which moves what it can find
    with anew(pair.ours) as still_later:
        assert still_later.read(second, "data") == data
        assert still_later.verify(deep=True).ok


def test_whoever_begins_with_a_snapshot_follows_what_is_appended(pair: Pair) -> None:
    save(pair.ours, "state/a", b"in the first segment")
    backend = LocalBackend(Path(pair.ours.url))
    backend.entries(0)
    backend.seal()
    save(pair.ours, "state/a", b"in the second")
    snapshot(pair.ours)
    with anew(pair.ours) as later:
        after = save(pair.ours, "state/a", b"in the second, too")
        own = save(later, "state/b", b"behind it")
        for store in (later, pair.ours, pair.theirs):
            assert {one.id for one in store.list()} >= {after.id, own.id}
            assert store.verify(deep=True).ok


def test_an_entry_that_could_not_be_made_durable_is_forgotten_by_its_readers(
    pair: Pair, tmp_path: Path
) -> None:
    """They may have read it before its writer noticed; its number belongs to the next one."""
    save(pair.ours, "state/a", b"before")
    (segment,) = (tmp_path / "store/log").glob("*.log")
    whole = segment.stat().st_size
    lost = save(pair.ours, "state/a", b"lost")
    assert lost.id in {one.id for one in pair.theirs.list()}
    os.truncate(segment, whole + 8)  # what a failed sync leaves
    saved = save(pair.theirs, "state/b", b"after")
    for store in (pair.ours, pair.theirs, anew(pair.ours)):
        assert {one.id for one in store.list()} >= {saved.id}
        assert lost.id not in {one.id for one in store.list()}
        assert store.read(saved, "data") == b"after"
        assert store.verify(deep=True).ok


def test_makers_of_the_same_store_do_not_disturb_each_other(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    ready = threading.Barrier(8)

    def make() -> None:
        ready.wait()
        try:
            save(open_store(tmp_path / "deep" / "store"), "state/a", b"x")
        except BaseException as error:
            failures.append(error)
            raise

    makers = [threading.Thread(target=make) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert not failures
    with open_store(tmp_path / "deep" / "store", create=False) as store:
        assert len(store.list()) == 8
        assert store.verify(deep=True).ok


# -- forks


def in_child(work: Callable[[], object]) -> int:
    """Run a function in a forked child; returns its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_that_exits_does_not_end_its_parents_draft(pair: Pair) -> None:
    data = content("forked", LARGE)
    with pair.ours.draft("state/a") as draft:
        draft.put("data", data, split="pages")

        def leave() -> None:
            with pytest.raises(SystemExit), draft:
                sys.exit(0)

        assert in_child(leave) == 0
        pair.theirs.prune()  # a hold that had ended would let this delete our pack
        saved = draft.commit()
    assert pair.theirs.read(saved, "data") == data


def test_a_child_may_open_the_store_itself(pair: Pair) -> None:
    save(pair.ours, "state/a", b"parent")

    def child() -> None:
        with open_store(pair.ours.url) as own:
            assert own.read("state/a", "data") == b"parent"
            save(own, "state/child", content("child", LARGE))

    assert in_child(child) == 0
    assert pair.ours.read("state/child", "data") == content("child", LARGE)


def test_a_lock_does_not_stay_with_a_child(tmp_path: Path) -> None:
    """A process forked while the log is locked has a copy of the lock's file."""
    LocalBackend(tmp_path / "store")
    with LogLock(tmp_path / "store" / "log" / "lock").held():
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(writing)
            os.read(reading, 1)  # lives until the parent is done
            os._exit(0)
    try:
        os.close(reading)
        with open_store(tmp_path / "store") as store:
            saved = save(store, "state/a", b"x")  # a lock still held would end in a Conflict
            assert store.head("state/a") == saved
    finally:
        os.close(writing)
        os.waitpid(pid, 0)


@pytest.mark.timeout(60)
def test_whoever_keeps_the_lock_is_named(tmp_path: Path) -> None:
    open_store(tmp_path / "store").close()
    impatient = LocalBackend(tmp_path / "store", patience=0.3)
    held = LogLock(tmp_path / "store" / "log" / "lock").held()
    with held, pytest.raises(Conflict, match=str(os.getpid())) as caught:
        impatient.seal()
    assert caught.value.hint


class Interrupted(LocalBackend):
    """Something else happens just before an entry is appended."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.meanwhile: list[Callable[[], object]] = []

    def append(self, signed: Signed) -> Frame:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return super().append(signed)


@pytest.mark.parametrize("moment", [0, 1])
def test_a_head_never_points_to_what_was_deleted(tmp_path: Path, moment: int) -> None:
    """Somebody restores the doomed one, before and after the head was moved off it."""
    backend = Interrupted(tmp_path / "store")
    ours, theirs = Store(backend, load_keyring()), open_store(tmp_path / "store")
    made = [save(ours, "state/x", b"%d" % i) for i in range(3)]
    backend.meanwhile = [lambda: None] * moment + [lambda: theirs.restore(made[1])]
    ours.delete(made[1], made[2])
    for store in (ours, theirs, anew(ours)):
        assert [one.id for one in store.list("state/x")] == [made[0].id]
        assert store.head("state/x") == made[0]
        assert save(store, "state/y", b"y").id


def test_two_who_delete_leave_a_head_that_exists(tmp_path: Path) -> None:
    """The one moves the head to what the other is about to drop."""
    backend = Interrupted(tmp_path / "store")
    ours, theirs = Store(backend, load_keyring()), open_store(tmp_path / "store")
    made = [save(ours, "state/x", b"%d" % i) for i in range(3)]
    backend.meanwhile = [lambda: theirs.delete(made[2])]
    ours.delete(made[1])
    for store in (ours, theirs, anew(ours)):
        assert store.head("state/x") == made[0]
        assert [one.id for one in store.list("state/x")] == [made[0].id]


def test_a_pin_that_comes_before_the_drop_counts(tmp_path: Path) -> None:
    """Whoever prunes decides on the log as it is when the drop is written."""
    ours, theirs = open_store(tmp_path / "store"), open_store(tmp_path / "store")
    first = save(ours, "state/x", b"first")
    save(ours, "state/x", b"second")

    class PinsMeanwhile(Policy):
        asked = 0

        def keep(self, newest_first: Sequence[Checkpoint], now: datetime) -> dict[str, str]:
            self.asked += 1
            if self.asked == 2:  # after the look, before the drop
                theirs.pin(first)
            return {}

    report = ours.prune(PinsMeanwhile())
    assert report.removed == ()
    assert ours.resolve(first).pinned
