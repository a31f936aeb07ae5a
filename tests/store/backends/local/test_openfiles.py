"""Open files: borrowed ones are the borrower's, and there are never too many."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt, NotFound
from holdfast.store.backends.local.openfiles import OpenFiles


def open_here(folder: Path) -> int:
    """Files below a folder, whatever other threads open and close meanwhile."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            links.append(os.readlink(entry))
    return sum(link.startswith(f"{folder}/") for link in links)


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
    files = files_of(folder)
    for _ in range(2):
        for number in range(100):
            assert read(files, number) == bytes([number]) * 10
    assert 0 < open_here(folder) <= 64
    files.close()
    assert open_here(folder) == 0


def test_what_nobody_closes_is_closed_when_nobody_has_it(folder: Path) -> None:
    files = files_of(folder)
    for number in range(10):
        read(files, number)
    assert open_here(folder) == 10
    del files
    gc.collect()
    assert open_here(folder) == 0


def test_a_forked_child_closes_nothing_of_its_parent(folder: Path) -> None:
    """What has the same number there may be something else."""
    files = files_of(folder)
    read(files, 7)
    child = os.fork()
    if not child:
        del files
        gc.collect()
        os._exit(open_here(folder))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert read(files, 7) == bytes([7]) * 10
    files.close()


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
