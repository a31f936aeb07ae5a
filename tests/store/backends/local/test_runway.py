"""The runway: zeros ahead of the last entry, which nobody ever sees as anything."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.store.backends.local.residency import resident

from holdfast.model.disk import Disk, Sync
from holdfast.model.errors import StorageFull
from holdfast.store import Store, open_store
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.backends.local.runway import AHEAD
from holdfast.store.log.frames import FILE_HEAD_SIZE, Signed


def entry(seq: int, size: int = 500) -> Signed:
    return Signed(seq=seq, key_id=bytes(8), mac=bytes(32), header=b"h" * size)


def begun(place: Path, count: int = 0, disk: Disk | None = None) -> LocalBackend:
    """A backend that has read its log and appended so many entries."""
    backend = LocalBackend(place, disk=disk)
    last = max((frame.seq for frame in backend.entries(0).frames), default=0)
    for seq in range(last + 1, last + 1 + count):
        backend.append(entry(seq))
    return backend


def segment(place: Path) -> Path:
    (found,) = place.glob("log/*.log")
    return found


def numbers(backend: LocalBackend, after: int = 0) -> list[int]:
    return [frame.seq for frame in backend.entries(after).frames]


def zeros(path: Path) -> int:
    """How many there are at the end; frames of these tests end with other bytes, or 7 zeros."""
    data = path.read_bytes()
    return len(data) - len(data.rstrip(b"\0"))


def test_a_large_entry_leaves_the_memory_of_the_system(place: Path) -> None:
    """What it took is there for the next one; small ones are read again and again, and stay."""
    backend = begun(place, 2)
    small = segment(place).stat().st_size // mmap.PAGESIZE
    body = os.urandom(40 * AHEAD)
    large = Signed(seq=3, key_id=bytes(8), mac=bytes(32), header=b"h", body=body)
    frame = backend.append(large)
    assert all(resident(segment(place)))  # whoever waits for it does not wait for that
    assert numbers(backend, 3) == []
    kept = resident(segment(place))
    assert all(kept[: small - AHEAD // mmap.PAGESIZE])
    assert kept.count(True) < len(kept) // 4  # the system reads ahead of what it was asked for
    assert kept[-1]  # where whoever comes next looks first
    assert backend.read(frame.origin, frame.body_offset, frame.body_size) == body


def test_who_goes_on_writes_over_zeros(place: Path) -> None:
    backend = begun(place, 1)
    once = segment(place).stat().st_size
    assert zeros(segment(place)) < 8  # one entry alone needs none
    backend.append(entry(2))
    laid = segment(place).stat().st_size
    assert laid == once + (once - FILE_HEAD_SIZE) + AHEAD
    for seq in range(3, 40):
        backend.append(entry(seq))
        assert segment(place).stat().st_size == laid
    assert numbers(begun(place)) == list(range(1, 40))
    assert backend.audit() == []


def test_zeros_are_laid_again_when_they_are_used_up(place: Path) -> None:
    backend = begun(place, 400)
    size = segment(place).stat().st_size
    assert size > 2 * AHEAD
    assert size - 400 * 600 < 2 * AHEAD
    assert numbers(begun(place)) == list(range(1, 401))
    assert backend.audit() == []


def test_a_large_entry_has_none_laid_behind_it(place: Path) -> None:
    backend = begun(place, 3)
    backend.append(entry(4, 2 * AHEAD))
    backend.append(entry(5, AHEAD))
    assert zeros(segment(place)) < 8
    assert numbers(begun(place)) == [1, 2, 3, 4, 5]


def test_closing_gives_the_zeros_back(place: Path) -> None:
    backend = begun(place, 9)
    assert zeros(segment(place)) > AHEAD // 2
    backend.close()
    assert zeros(segment(place)) < 8
    backend.append(entry(10))
    assert numbers(begun(place)) == list(range(1, 11))


def test_what_another_wrote_since_is_not_cut(place: Path) -> None:
    one, other = begun(place, 3), begun(place)
    other.append(entry(4))
    one.close()
    assert numbers(begun(place)) == [1, 2, 3, 4]
    other.append(entry(5))
    other.append(entry(6))
    other.close()
    assert zeros(segment(place)) < 8
    assert numbers(begun(place)) == [1, 2, 3, 4, 5, 6]


def test_others_follow_although_the_file_does_not_grow(place: Path) -> None:
    writer, reader = begun(place, 3), begun(place)
    size = segment(place).stat().st_size
    time.sleep(0.12)  # from now on a quiet log is looked at, not listed
    for seq in range(4, 9):
        assert numbers(reader, seq - 1) == []
        writer.append(entry(seq))
        assert numbers(reader, seq - 1) == [seq]
    assert segment(place).stat().st_size == size
    writer.close()  # what was given back is nothing that had been read
    assert numbers(reader, 8) == []
    reader.append(entry(9))
    assert numbers(writer, 8) == [9]


def test_two_writers_share_one(place: Path) -> None:
    one, other = begun(place, 2), begun(place)
    for seq in range(3, 60, 2):
        assert numbers(other, seq - 1 if seq == 3 else seq - 2)[-1:] in ([], [seq - 1])
        other.append(entry(seq))
        assert numbers(one, seq - 1) == [seq]
        one.append(entry(seq + 1))
    assert len(list(place.glob("log/*.log"))) == 1
    assert numbers(begun(place)) == list(range(1, 61))


def test_an_old_segment_keeps_no_zeros(place: Path) -> None:
    backend = begun(place, 5)
    old = segment(place)
    backend.seal()
    assert zeros(old) < 8
    backend.append(entry(6))
    assert numbers(begun(place)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("lost", ["all", "some", "front", "back"])
def test_an_entry_that_came_to_the_disk_in_part(place: Path, lost: str) -> None:
    """As a power loss leaves it: sectors of the last entry are there, or zeros."""
    begun(place, 3)  # not closed: the zeros are there
    path = segment(place)
    end = len(path.read_bytes().rstrip(b"\0"))
    begun(place, 1)
    data = bytearray(path.read_bytes())
    new = range(end, len(data.rstrip(b"\0")))
    for at in new:
        sector = (at // 64) % 2
        if lost == "all" or (lost == "some" and sector) or at in _half(new, lost):
            data[at] = 0
    path.write_bytes(data)
    again = begun(place)
    assert numbers(again) == [1, 2, 3]
    assert [damage.unsettled for damage in again.audit()] == [True] * (lost != "all")
    again.append(entry(4))
    assert numbers(begun(place)) == [1, 2, 3, 4]
    assert len(list(place.glob("log/*.log"))) == (1 if lost == "all" else 2)
    assert all(damage.torn for damage in again.audit())


def _half(new: range, lost: str) -> range:
    middle = (new.start + new.stop) // 2
    return {"front": new[: middle - new.start], "back": new[middle - new.start :]}.get(
        lost, range(0)
    )


class FullDisk(Disk):
    """Syncs fail when asked to, after the bytes were written."""

    failing = False

    def sync_file(self, fd: int, what: Sync) -> None:
        if self.failing and what == "entry":
            raise OSError(errno.ENOSPC, "no room")
        super().sync_file(fd, what)


def test_an_entry_that_could_not_be_synced_is_taken_back(place: Path) -> None:
    disk = FullDisk()
    writer, reader = begun(place, 3, disk), begun(place)
    disk.failing = True
    with pytest.raises(StorageFull):
        writer.append(entry(4))
    disk.failing = False
    assert numbers(begun(place)) == [1, 2, 3]
    assert numbers(reader, 3) == []
    writer.append(entry(4, 700))
    assert numbers(reader, 3) == [4]
    assert len(list(place.glob("log/*.log"))) == 2
    writer.close()
    assert numbers(begun(place)) == [1, 2, 3, 4]


def test_nobody_builds_on_the_place_of_an_entry_that_the_system_forgot(place: Path) -> None:
    """Some file systems drop the bytes that they failed to write: zeros are there then, as before,
    and somebody may have read the entry meanwhile."""
    read: list[LocalBackend] = []

    class Forgets(FullDisk):
        def sync_file(self, fd: int, what: Sync) -> None:
            if self.failing:
                reader = begun(place)
                assert numbers(reader) == [1, 2, 3, 4]
                read.append(reader)
                data = segment(place).read_bytes()
                behind = data[len(before) :]
                os.pwrite(fd, bytes(len(behind)), len(before))
            super().sync_file(fd, what)

    disk = Forgets()
    writer = begun(place, 3, disk)
    before = segment(place).read_bytes().rstrip(b"\0")
    disk.failing = True
    with pytest.raises(StorageFull):
        writer.append(entry(4))
    disk.failing = False
    other = begun(place)
    assert numbers(other) == [1, 2, 3]
    other.append(entry(4, 900))
    (reader,) = read
    tail = reader.entries(4)
    assert tail.reset
    assert [len(frame.header) for frame in tail.frames] == [500, 500, 500, 900]


def test_without_room_for_zeros_one_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = begun(place, 1)
    real = os.pwrite

    def full(fd: int, data: memoryview, offset: int) -> int:
        if not any(data):
            raise OSError(errno.ENOSPC, "no room")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    for seq in range(2, 6):
        backend.append(entry(seq))
    assert zeros(segment(place)) < 8
    assert numbers(begun(place)) == [1, 2, 3, 4, 5]


PROGRAM = """
import os, sys
from holdfast.store import open_store
from holdfast.state import StateManager
store = open_store(sys.argv[1])
manager = StateManager("s", store=store, checkpoint_limit=1000)
for number in range(int(sys.argv[2])):
    manager.set_state("number", number)
    manager.checkpoint()
    print(number, flush=True)
if sys.argv[3] == "die":
    os.kill(os.getpid(), 9)
if sys.argv[3] == "fork" and os.fork() == 0:
    sys.exit()  # as a child that does not know of the store
if sys.argv[3] == "fork":
    os.wait()
    from pathlib import Path
    (log,) = Path(sys.argv[1]).glob("log/*.log")
    assert log.read_bytes().endswith(bytes(1000)), "the child cut off what is its parent's"
"""


@pytest.fixture
def program(place: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(count: int, end: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, str(place), str(count), end]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    return run


@pytest.mark.parametrize("end", ["return", "fork"])
def test_a_program_that_ends_gives_the_zeros_back(place: Path, program, end: str) -> None:
    done = program(5, end)
    assert done.returncode == 0, done.stderr
    assert zeros(segment(place)) < 8
    with open_store(place) as store:
        assert store.verify().ok
        assert len(store.list()) == 5


def test_who_is_killed_leaves_them_to_the_next(place: Path, program) -> None:
    done = program(5, "die")
    assert done.returncode == -signal.SIGKILL, done.stderr
    size = segment(place).stat().st_size
    assert zeros(segment(place)) > AHEAD // 2
    with open_store(place) as store:
        report = store.verify()
        assert report.ok, report.problems
        assert not report.notes
    done = program(5, "return")
    assert done.returncode == 0, done.stderr
    assert len(list(place.glob("log/*.log"))) == 1
    assert segment(place).stat().st_size < size
    with open_store(place) as store:
        assert len(store.list()) == 10


def test_a_byte_in_the_zeros_is_told(store: Store, save, place: Path) -> None:
    made = [save(bytes([number])) for number in range(3)]
    path = segment(place)
    data = bytearray(path.read_bytes())
    data[-100] = 1
    path.write_bytes(data)
    with open_store(place) as again:
        assert again.list() == made[::-1]
        (problem,) = again.verify().problems
        assert "interrupted append" in problem.what


def test_who_makes_room_takes_none(place: Path) -> None:
    backend = begun(place, 1)
    for seq in range(2, 5):
        backend.append(msgspec.structs.replace(entry(seq), frees=True))
    assert zeros(segment(place)) < 8
    backend.append(entry(5))
    assert zeros(segment(place)) > AHEAD // 2
    (volume,) = backend.volumes()
    assert segment(place).stat().st_size == volume.size + AHEAD
    backend.close()
    assert segment(place).stat().st_size == volume.size
