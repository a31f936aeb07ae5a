"""The tracker against a plain comparison of bytes, in this very process."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strangers import NOBODY, folder_of_nobody, run_as_nobody

from holdfast.session.worker.cells import CellLog
from holdfast.session.worker.codes import CodeIndex
from holdfast.session.worker.labels import Labels
from holdfast.session.worker.memory.pagemap import PAGE, Pagemap
from holdfast.session.worker.memory.tracker import MOST, Tracker, joined, known_as
from holdfast.session.worker.surroundings import Surroundings

SIZE = 64 * PAGE


class Watched:
    """Buffers in one block of memory, and what they held at each capture."""

    def __init__(self, places: list[tuple[int, int]]) -> None:
        self.block = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory = np.frombuffer(self.block, dtype=np.uint8)
        start = self.memory.ctypes.data
        self.buffers = {(start + at, size): self.memory[at : at + size] for at, size in places}
        self.tracker = Tracker()
        self.held: dict[int, dict[tuple[int, int], bytes]] = {}
        self.number = 0

    def write(self, writes: list[tuple[int, int]]) -> None:
        for first, size in writes:
            self.memory[first : first + size] += 1

    def capture(
        self,
        base: int,
        late: tuple[int, int] | None = None,
        meanwhile: list[tuple[int, int]] | None = None,
    ) -> None:
        """Look, and check that what is said to be as before is as before.

        One buffer may be found late, after code has written `meanwhile`, or not at all.
        """
        self.number += 1
        self.tracker.begin(self.number, base)
        self.tracker.watch(place for place in self.buffers if place != late)
        if meanwhile is not None:
            self.write(meanwhile)
            self.tracker.watch(self.buffers)
            self.tracker.look_again()
        for place, now in self.buffers.items():
            runs = self.tracker.changed(place, "b1")
            if runs is None:
                continue
            told = np.frombuffer(self.held[base][place], dtype=np.uint8).copy()
            for first, end in runs:
                told[first:end] = now[first:end]
            assert (told == now).all()
        self.tracker.captured(self.number, [(*place, "b1") for place in self.buffers])
        self.held[self.number] = {place: now.tobytes() for place, now in self.buffers.items()}


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_what_is_not_told_is_as_it_was(data: st.DataObject) -> None:
    at = st.integers(0, SIZE - PAGE)
    places = data.draw(st.lists(st.tuples(at, st.integers(1, PAGE * 20)), min_size=1, max_size=5))
    watched = Watched([(start, min(size, SIZE - start)) for start, size in places])
    for step in range(data.draw(st.integers(2, 7))):
        writes = st.lists(st.tuples(at, st.sampled_from([1, 5000])), max_size=4)
        watched.write(data.draw(writes))
        base = data.draw(st.integers(0, step))
        late = data.draw(st.none() | st.sampled_from(sorted(watched.buffers)))
        watched.capture(base, late, data.draw(st.none() | writes))


def test_what_is_written_to_a_neighbour_s_neighbour_is_told() -> None:
    """To find the first of three in a row must not look at a page that the last two share."""
    first, second, third = [(16 + 10 * PAGE * number, 10 * PAGE) for number in range(3)]
    watched = Watched([first, second, third])
    late, *others = sorted(watched.buffers)
    tracker = watched.tracker
    tracker.begin(1, 0)
    tracker.watch(others)
    tracker.captured(1, [(*place, "b1") for place in others])
    tracker.begin(2, 1)
    watched.write([(third[0], 8)])
    tracker.watch([late])
    tracker.look_again()
    page = third[0] // PAGE * PAGE - third[0]
    assert tracker.changed(others[1], "b1") == [(0, page + PAGE)]


def test_what_a_restore_s_own_code_writes_is_told() -> None:
    """Each of these is brought after its neighbour was written to."""
    watched = Watched([(16 + 10 * PAGE * number, 10 * PAGE) for number in range(4)])
    watched.number = 1
    watched.tracker.begin(1, 0)
    for place, now in sorted(watched.buffers.items()):
        watched.tracker.placed(*place, "b1")
        watched.held.setdefault(1, {})[place] = now.tobytes()
        now[-8:] += 1
    assert [watched.tracker.changed(place, "b1") for place in watched.buffers] == [None] * 4
    watched.capture(1)  # what was brought is the base from now on
    told = [watched.tracker.changed(place, "b1") for place in watched.buffers]
    assert None not in told
    assert sum(end - start for runs in told for start, end in runs or ()) < 8 * PAGE


class Rung(Exception):
    pass


def test_an_interrupted_look_forgets_nothing() -> None:
    """The kernel tells of a page once, and is asked in a call that an interrupt does not end."""
    array = np.frombuffer(
        mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.uint8
    )
    array[::PAGE] = 1
    tracker, place = Tracker(), (array.ctypes.data, array.nbytes)

    def ring(number: int, frame: object) -> None:
        raise Rung

    before = signal.signal(signal.SIGALRM, ring)
    interrupted = 0
    try:
        for number in range(1, 600, 3):
            tracker.begin(number, 0)
            tracker.watch([place])
            tracker.captured(number, [(*place, "b1")])
            tracker.begin(number + 1, number)
            array[123 * PAGE] += 1
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * number)
                tracker.look_again()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Rung:
                interrupted += 1
            tracker.begin(number + 2, number)  # that capture has failed
            told = tracker.changed(place, "b1")
            assert told is None or (123 * PAGE, 124 * PAGE) in told
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted


def test_what_was_freed_makes_room() -> None:
    """Of arrays that come and go, each with a size of its own, only the last is worth a watch."""
    array, tracker = ones(), Tracker()
    start = array.ctypes.data
    for number in range(1, MOST + 10):
        tracker.begin(number, number - 1)
        places = [(start, array.nbytes - 8 * number)]
        tracker.watch(places)
        tracker.captured(number, [(*place, "b1") for place in places])
    tracker.begin(number + 1, number)
    assert tracker.changed(places[0], "b1") == []


def test_a_copy_knows_what_it_has_written_itself() -> None:
    """What a copy of the process made for a record may lie where the process has something else."""
    array, other = ones(), ones()
    places = [(each.ctypes.data, each.nbytes) for each in (array, other)]
    tracker = Tracker()
    tracker.begin(1, 0)
    tracker.watch(places)
    tracker.captured(1, [(*place, "b1") for place in places])
    other[9] = 2
    tracker.begin(2, 1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            tracker.apart()
            array[5000] = 9
            tracker.look_again()
            os.write(write, repr([tracker.own_writes(place) for place in places]).encode())
        finally:
            os._exit(0)
    os.close(write)
    told = os.read(read, 1000).decode()
    os.close(read)
    os.waitpid(child, 0)
    page = (array.ctypes.data + 40_000) // PAGE * PAGE
    assert told == repr([[(page, page + PAGE)], []])


def ones() -> np.ndarray:
    """An array that shares no page with anything else."""
    array = np.frombuffer(mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    array[:] = 1.0
    return array


def changes(array: np.ndarray, *between: Callable[[np.ndarray], object]) -> list[object]:
    """What is told after each of these."""
    tracker, place = Tracker(), (array.ctypes.data, array.nbytes)
    tracker.begin(1, 0)
    tracker.watch([place])
    tracker.captured(1, [(*place, "b1")])
    found: list[object] = []
    for number, change in enumerate(between, 2):
        change(array)
        tracker.begin(number, number - 1)
        found.append(tracker.changed(place, "b1"))
        tracker.captured(number, [(*place, "b1")])
    return found


def test_only_pages_that_were_written_to_are_told() -> None:
    array = ones()
    pages = changes(array, lambda a: None, lambda a: a.__setitem__(5000, 2.0), lambda a: a.sum())
    assert pages[0] == [] == pages[2]
    assert isinstance(pages[1], list)
    ((first, end),) = pages[1]
    assert first <= 5000 * 8 < end <= first + PAGE


def test_what_the_kernel_writes_is_told() -> None:
    def from_a_pipe(array: np.ndarray) -> None:
        read, write = os.pipe()
        os.write(write, b"x" * 100)
        os.readv(read, [memoryview(array).cast("B")[9000:9100]])
        os.close(read)
        os.close(write)

    (told,) = changes(ones(), from_a_pipe)
    assert told
    assert told[0][0] <= 9000 < told[0][1]


def test_memory_that_was_given_back_is_told() -> None:
    libc = ctypes.CDLL(None)
    dontneed = 4

    def give_back(array: np.ndarray) -> None:
        start = -(-array.ctypes.data // PAGE) * PAGE
        assert libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(16 * PAGE), dontneed) == 0
        assert not array[600]

    (told,) = changes(ones(), give_back)
    assert told
    assert sum(end - first for first, end in told) >= 15 * PAGE


def test_memory_that_was_replaced_is_not_known() -> None:
    tracker = Tracker()
    with mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        memory = np.frombuffer(block, dtype=np.uint8)
        place = (memory.ctypes.data, memory.nbytes)
        tracker.begin(1, 0)
        tracker.watch([place])
        tracker.captured(1, [(*place, "b1")])
        tracker.begin(2, 1)
        assert tracker.changed(place, "b1") == []
        # Not by freeing it and asking for as much: malloc may have kept it.
        map_anew(*place)
        tracker.begin(3, 1)
        assert tracker.changed(place, "b1") is None
        assert not memory.any()
        del memory


def map_anew(address: int, size: int) -> None:
    """Other memory in the place of what is there."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # fixed
    assert libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == address


def test_what_is_mostly_rewritten_is_left_alone() -> None:
    array = ones()
    tracker, place = Tracker(), (array.ctypes.data, array.nbytes)
    told: list[bool] = []
    for number in range(1, 30):
        tracker.begin(number, number - 1)
        tracker.watch([place])
        told.append(tracker.changed(place, "b1") is not None)
        tracker.captured(number, [(*place, "b1")])
        array += 1
    assert told[:4] == [False, True, False, False]
    assert sum(told) <= 3


def test_a_fork_does_not_disturb() -> None:
    def fork(array: np.ndarray) -> None:
        child = os.fork()
        if child == 0:
            array[:] = 7  # in the child's own memory
            os._exit(0)
        os.waitpid(child, 0)
        array[0] = 3

    (told,) = changes(ones(), fork)
    assert told
    assert told[0][0] == 0


def test_what_others_can_write_to_is_never_told_as_unchanged(tmp_path: Path) -> None:
    """The kernel would watch it, and would not see what another process writes."""
    path = tmp_path / "file"
    path.write_bytes(bytes(SIZE))

    def elsewhere(array: np.ndarray) -> None:
        child = os.fork()
        if child == 0:
            array[SIZE // 2] += 1  # as the others see it, where it is shared
            os._exit(0)
        os.waitpid(child, 0)
        with path.open("r+b") as file:
            file.seek(SIZE // 2)
            file.write(b"x")

    anonymous = np.frombuffer(mmap.mmap(-1, SIZE), dtype=np.uint8)
    filed = [np.memmap(path, mode=mode, dtype=np.uint8) for mode in ("r+", "c")]
    with path.open("r+b") as file:
        filed.append(np.frombuffer(mmap.mmap(file.fileno(), SIZE), dtype=np.uint8))
    for array in (anonymous, *filed):
        before = array[SIZE // 2]
        assert changes(array, lambda a: None, elsewhere) == [None, None]
        assert array[SIZE // 2] != before
        path.write_bytes(bytes(SIZE))


def test_a_mapped_file_is_watched_when_it_is_known_to_stay(tmp_path: Path) -> None:
    path = tmp_path / "pack"
    path.write_bytes(bytes(SIZE))
    with path.open("rb") as file:
        block = mmap.mmap(file.fileno(), SIZE, flags=mmap.MAP_PRIVATE)
        array = np.frombuffer(block, dtype=np.uint8)
        tracker, place = Tracker(), (array.ctypes.data, SIZE)
        tracker.maps([file.fileno()])
    path.unlink()  # as a store that tidies up does
    tracker.begin(1, 0)
    tracker.watch([place])
    tracker.captured(1, [(*place, "b1")])
    array[PAGE] = 1
    tracker.begin(2, 1)
    assert tracker.changed(place, "b1") == [(PAGE, 2 * PAGE)]


def test_what_only_a_copy_found_is_watched_from_the_next_capture_on() -> None:
    """The copy cannot watch this process's memory, and what it found lies deep in other things."""
    array = ones()
    tracker, place = Tracker(), (array.ctypes.data, array.nbytes)
    found = []
    for number in (1, 2, 3):
        array[5000] = number
        tracker.begin(number, number - 1)
        found.append(tracker.changed(place, "b1"))
        tracker.captured(number, [(*place, "b1")])
    first = 5000 * 8 // PAGE * PAGE
    assert found == [None, None, [(first, first + PAGE)]]


def test_without_the_kernel_nothing_is_known() -> None:
    array = ones()
    tracker, place = Tracker.off(), (array.ctypes.data, array.nbytes)
    for number in (1, 2, 3):
        tracker.begin(number, number - 1)
        tracker.watch([place])
        assert tracker.changed(place, "b1") is None
        tracker.captured(number, [(*place, "b1")])


def huge_bytes(address: int) -> int:
    """How much of the mapping at an address the kernel keeps in huge pages."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-", line):
            first, last = (int(each, 16) for each in line.split()[0].split("-"))
            inside = first <= address < last
        elif inside and line.startswith("AnonHugePages:"):
            return int(line.split()[1]) * 1024
    pytest.fail(f"nothing is mapped at {address:#x}")


def test_huge_pages() -> None:
    huge = 2 << 20
    block = mmap.mmap(-1, 8 * huge, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(block, dtype=np.uint8)
    array += 1
    if not huge_bytes(array.ctypes.data):
        pytest.fail("this machine gives no huge pages: see transparent_hugepage/enabled")
    changed, same = changes(array, lambda a: a.__setitem__(5 * huge, 9), lambda a: None)
    assert isinstance(changed, list)
    assert any(first <= 5 * huge < end for first, end in changed)
    assert sum(end - first for first, end in changed) <= huge
    assert same == []


def test_joining() -> None:
    assert joined([(5, 9), (1, 3), (3, 4), (8, 12), (2, 2)]) == [(1, 4), (5, 12)]


def test_this_machine_can_tell() -> None:
    try:
        Pagemap().close()
    except OSError as error:  # a kernel before 6.7: increments are compared by the store
        pytest.fail(f"no dirty pages on this machine: {error}")


AS_NOBODY = """
import ctypes, mmap, os
from holdfast.session.worker.memory.pagemap import PAGE, Pagemap
print(os.getuid(), os.getgroups())
size = 64 * PAGE
block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block[:] = b'1' * size
start, pages = ctypes.addressof(ctypes.c_char.from_buffer(block)), Pagemap()
pages.watch(start, start + size)
block[9 * PAGE + 5] = 2
print([(first - start, last - start) for first, last in pages.written(start, start + size)])
"""


def test_no_privileges_are_needed() -> None:
    with folder_of_nobody("pagemap") as folder:
        done = run_as_nobody(folder, "-c", AS_NOBODY)
    told = f"{NOBODY} []\n[({9 * PAGE}, {10 * PAGE})]\n"
    assert (done.stdout, done.stderr) == (told, "")


def test_an_array_that_takes_over_the_place_of_something_else_is_sent_whole() -> None:
    """Both have the same address, size and label, but do not lie on their pages in the same way."""
    # Not malloc's: what that gives again may be watched still for a test before this one.
    own = mmap.mmap(-1, 400_000 * 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    data = np.frombuffer(own, dtype=np.int64)
    place = (data.ctypes.data, data.nbytes)
    tracker, namespace = Tracker(), {}
    around = Surroundings(namespace, CodeIndex(CellLog()), {}, {}, Labels(), tracker=tracker)
    for number, owner, base in ((1, memoryview(data).cast("B"), 0), (2, data, 0), (3, data, 2)):
        tracker.begin(number, number - 1)
        label = around.buffer(*place, owner)
        image = around.image(label)
        assert image.base == base
        tracker.captured(number, [(*place, known_as(label, image.skew))])
