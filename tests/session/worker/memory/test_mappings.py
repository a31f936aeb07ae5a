"""What the kernel says about mappings when it is asked, and what it lists."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path

import pytest

from holdfast.session.worker.memory import mappings
from holdfast.session.worker.memory.mappings import Mappings
from holdfast.session.worker.memory.pagemap import PAGE

SIZE = 8 * PAGE
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def start_of(block: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(block))


@pytest.fixture
def blocks(tmp_path: Path) -> dict[str, mmap.mmap]:
    path = tmp_path / "a file with a name"
    path.write_bytes(bytes(SIZE))
    memfd = os.memfd_create("held")
    os.truncate(memfd, SIZE)
    with path.open("r+b") as file:
        made = {
            "anonymous": mmap.mmap(-1, SIZE, flags=PRIVATE),
            "shared": mmap.mmap(-1, SIZE),
            "file": mmap.mmap(file.fileno(), SIZE, flags=mmap.MAP_PRIVATE),
            "shared file": mmap.mmap(file.fileno(), SIZE),
            "memfd": mmap.mmap(memfd, SIZE, flags=mmap.MAP_PRIVATE),
        }
    os.close(memfd)
    return made


def test_only_what_is_anonymous_and_private_is_ours(blocks: dict[str, mmap.mmap]) -> None:
    known = Mappings()
    ours = {n: known.own(start_of(b), start_of(b) + SIZE) for n, b in blocks.items()}
    assert ours == {name: name == "anonymous" for name in blocks}


def test_a_file_that_stays_as_it_is_may_be_mapped(
    blocks: dict[str, mmap.mmap], tmp_path: Path
) -> None:
    known = Mappings()
    start = start_of(blocks["file"])
    with (tmp_path / "a file with a name").open("rb") as file:
        known.fixed([file.fileno()])
    assert known.own(start, start + SIZE)
    (tmp_path / "a file with a name").unlink()
    assert known.own(start, start + SIZE)
    shared = start_of(blocks["shared file"])
    assert not known.own(shared, shared + SIZE)
    known.fixed([])
    assert not known.own(start, start + SIZE)


def test_what_is_not_mapped_is_not_ours(blocks: dict[str, mmap.mmap]) -> None:
    start = start_of(blocks["anonymous"])
    assert not Mappings().own(PAGE, 2 * PAGE)
    assert not Mappings().own(start, 1 << 47)


def test_asking_and_reading_tell_the_same(blocks: dict[str, mmap.mmap]) -> None:
    """Kernels before 6.11 cannot be asked."""
    file = os.open("/proc/self/maps", os.O_RDONLY)
    try:
        for block in blocks.values():
            where = start_of(block), start_of(block) + SIZE
            read = list(mappings.listed(*where))
            assert read
            try:
                assert list(mappings.asked(file, *where)) == read
            except OSError as error:
                if error.errno != errno.ENOTTY:  # else it cannot be asked, and all are read
                    raise
            assert list(mappings.look(*where)) == read
    finally:
        os.close(file)
