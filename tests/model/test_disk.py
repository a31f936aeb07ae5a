"""The disk: new files are private, whole and new; the way to a folder is synced up to its mount."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.model.disk import Disk, Sync


class WatchedDisk(Disk):
    """Says what is synced."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Sync]] = []

    def sync_file(self, fd: int, what: Sync) -> None:
        self.seen.append((os.readlink(f"/proc/self/fd/{fd}"), what))
        super().sync_file(fd, what)

    def sync_directory(self, path: Path, what: Sync) -> None:
        self.seen.append((str(path), what))
        super().sync_directory(path, what)


def test_a_new_file_is_private_and_synced(tmp_path: Path) -> None:
    disk, path = WatchedDisk(), tmp_path / "new"
    disk.write(path, b"all of it", "state data")
    assert path.read_bytes() == b"all of it"
    assert path.stat().st_mode & 0o777 == 0o600
    assert disk.seen == [(str(path), "state data")]


def test_nothing_is_written_over_or_through(tmp_path: Path) -> None:
    other = tmp_path / "other"
    (tmp_path / "link").symlink_to(other)
    (tmp_path / "there").write_text("mine")
    for name in ("link", "there"):
        with pytest.raises(FileExistsError):
            Disk().write(tmp_path / name, b"theirs", "pass data")
    assert not other.exists()
    assert (tmp_path / "there").read_text() == "mine"


def test_the_way_is_every_folder_above_on_the_same_disk(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    disk = WatchedDisk()
    disk.sync_way(folder, "state place")
    here = folder.stat().st_dev
    above = [str(each) for each in folder.parents if each.stat().st_dev == here]
    assert [path for path, _ in disk.seen] == above[: len(disk.seen)]
    nearest = [(str(tmp_path / "a"), "state place"), (str(tmp_path), "state place")]
    assert disk.seen[:2] == nearest
