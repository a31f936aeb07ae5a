"""The log of a directory: segments, appended to under a lock."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from holdfast.store import Store, open_store
from holdfast.store.backends.contract import Behind
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.log.frames import Signed


def entry(seq: int, header: bytes = b"\x92\xa4upto\x01") -> Signed:
    return Signed(seq=seq, key_id=bytes(8), mac=bytes(32), header=header)


def test_an_entry_has_one_number_and_one_winner(place: Path) -> None:
    one, other = LocalBackend(place), LocalBackend(place)
    one.entries(0)
    other.entries(0)
    one.append(entry(1))
    with pytest.raises(Behind):
        other.append(entry(1))
    with pytest.raises(Behind):
        one.append(entry(3))
    assert [frame.seq for frame in other.entries(0).frames] == [1]
    other.append(entry(2))
    assert [frame.seq for frame in one.entries(1).frames] == [2]


def test_what_an_interrupted_append_left_does_not_stop_the_next(
    store: Store, save, place: Path
) -> None:
    made = [save(bytes([i])) for i in range(3)]
    (log,) = place.glob("log/*.log")
    whole = log.read_bytes()
    for torn in (whole + whole[64:150], whole + b"\0" * 500 + b"x", whole + os.urandom(77)):
        log.write_bytes(torn)
        with open_store(place) as again:
            assert again.list() == made[::-1]
            (problem,) = again.verify().problems
            assert "interrupted append" in problem.what
            made.append(save(b"next", into=again))
            report = again.verify()
            assert report.ok
            assert any("interrupted append" in note for note in report.notes)
        for extra in sorted(place.glob("log/*.log"))[1:]:
            extra.unlink()  # back to where the story began
        made.pop()
        log.write_bytes(whole)


def test_a_segment_is_only_ever_appended_to(store: Store, save, place: Path) -> None:
    save()
    (log,) = place.glob("log/*.log")
    before, inode = log.read_bytes(), log.stat().st_ino
    save()
    store.tag("state/x", "name")
    assert log.read_bytes()[: len(before)] == before
    assert log.stat().st_ino == inode
    assert len(list(place.glob("log/*.log"))) == 1


def test_a_damaged_head_is_named_and_its_entries_are_read(store: Store, save, place: Path) -> None:
    made = save()
    (log,) = place.glob("log/*.log")
    data = bytearray(log.read_bytes())
    data[20] ^= 1
    log.write_bytes(data)
    with open_store(place) as again:
        assert again.list() == [made]
        assert any("head" in problem.what for problem in again.verify().problems)


def test_strange_files_are_left_alone(store: Store, save, place: Path) -> None:
    made = save()
    (place / "log" / "notes.txt").write_text("mine")
    (place / "packs" / "notes.txt").write_text("mine")
    with open_store(place) as again:
        assert again.list() == [made]
        again.prune()
        assert again.verify(deep=True).ok
    assert (place / "log" / "notes.txt").exists()


def test_who_holds_the_lock_is_waited_for(store: Store, save, place: Path) -> None:
    save()
    fd = os.open(place / "log" / "lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    child = os.fork()
    if child == 0:
        fcntl.flock(fd, fcntl.LOCK_UN)  # the lock belongs to both
        os._exit(0)
    assert save(b"after the wait").parents
    os.waitpid(child, 0)
    os.close(fd)


def test_what_others_add_is_seen_when_the_log_has_been_still(place: Path) -> None:
    """A quiet log is looked at, not listed; whatever is added in whichever file is seen."""
    one, other = LocalBackend(place), LocalBackend(place)
    one.entries(0)
    one.append(entry(1))
    other.entries(0)
    time.sleep(0.12)  # longer than a file system's clock ticks
    assert one.entries(1).frames == []
    assert one.entries(1).frames == []
    other.append(entry(2))
    assert [frame.seq for frame in one.entries(1).frames] == [2]
    other.seal()  # an empty segment: what follows goes there, and no name changes then
    time.sleep(0.12)
    assert one.entries(2).frames == []
    time.sleep(0.12)
    assert one.entries(2).frames == []
    other.append(entry(3))
    assert [frame.seq for frame in one.entries(2).frames] == [3]
    one.append(entry(4))
    assert [frame.seq for frame in other.entries(3).frames] == [4]


def test_where_only_seconds_are_kept_a_name_of_the_same_second_is_seen(place: Path) -> None:
    one, other = LocalBackend(place), LocalBackend(place)
    one.entries(0)
    one.append(entry(1))
    for last in range(1, 20):
        other.entries(last - 1)
        while time.time() % 1 < 0.1:
            time.sleep(0.02)
        second = int(time.time())
        os.utime(place / "log", (second, second))
        one.entries(last)
        in_time = time.time() - second < 2
        other.seal()
        other.append(entry(last + 1))
        os.utime(place / "log", (second, second))
        if in_time:  # else a name of that second can come no more
            break
    assert [frame.seq for frame in one.entries(last).frames] == [last + 1]
