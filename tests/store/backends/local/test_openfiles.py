"""Open files: borrowed ones are the borrower's, and there are never too many."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt, NotFound
from holdfast.store.backends.local.openfiles import OpenFiles


def open_here() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(100):
        (tmp_path / bytes([number]).hex()).write_bytes(bytes([number]) * 10)
    return tmp_path


def files_of(folder: Path) -> OpenFiles:
    return OpenFiles(lambda volume: folder / volume.hex())


def read(files: OpenFiles, number: int) -> bytes:
    fd = files.borrow(bytes([number]))
    try:
        return os.pread(fd, 10, 0)
    finally:
        os.close(fd)


def test_a_hundred_are_read_with_less_than_a_hundred_open(folder: Path) -> None:
    gc.collect()  # what others left open closes now, and not meanwhile
    before = open_here()
    files = files_of(folder)
    for _ in range(2):
        for number in range(100):
            assert read(files, number) == bytes([number]) * 10
    assert before < open_here() <= before + 64
    files.close()
    assert open_here() == before


def test_what_is_forgotten_is_looked_for_again(folder: Path) -> None:
    files = files_of(folder)
    assert read(files, 7) == bytes([7]) * 10
    (folder / "07").unlink()
    assert read(files, 7) == bytes([7]) * 10  # open still
    files.forget(bytes([7]))
    with pytest.raises(NotFound):
        read(files, 7)
    files.close()


def test_what_is_no_file_is_said(folder: Path) -> None:
    (folder / "07").unlink()
    (folder / "07").mkdir()
    with pytest.raises(Corrupt, match="a directory, not a file"):
        read(files_of(folder), 7)


def test_a_child_opens_its_own(folder: Path) -> None:
    files = files_of(folder)
    read(files, 7)
    child = os.fork()
    if child == 0:
        os._exit(0 if read(files, 8) == bytes([8]) * 10 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read(files, 7) == bytes([7]) * 10
    files.close()
