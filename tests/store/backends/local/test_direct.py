"""Writing past the file cache, where that can be done."""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.backends.local.residency import resident

from holdfast.model.errors import StorageFull
from holdfast.store import open_store
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.backends.local.direct import BLOCK, Direct


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").touch()
    return tmp_path / "file"


def blocks(count: int) -> memoryview:
    """Noise at the beginning of a page."""
    room = mmap.mmap(-1, count * BLOCK)
    room[:] = os.urandom(count * BLOCK)
    return memoryview(room)


def test_whole_blocks_go_past_the_cache(path: Path) -> None:
    data, direct = blocks(64), Direct(path)
    assert direct.write(BLOCK, [data[: 8 * BLOCK], data[8 * BLOCK :]]) == len(data)
    direct.close()
    direct.close()
    assert path.read_bytes()[BLOCK:] == data
    path.unlink()


def test_the_rest_is_left_to_others(path: Path) -> None:
    data, direct = blocks(4), Direct(path)
    assert direct.write(0, [data[:BLOCK], data[: BLOCK + 5], data]) == 2 * BLOCK
    assert direct.write(7, [data]) == 0
    assert direct.write(0, [b"short"]) == direct.write(0, []) == 0
    direct.close()


def test_a_file_that_cannot_be_opened_so_is_written_as_usual(tmp_path: Path) -> None:
    assert Direct(tmp_path / "not there").write(0, [blocks(1)]) == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Room for little."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_is_told(small_disk: Path) -> None:
    pack = LocalBackend(small_disk / "store").create_pack(bytes(16))
    pack.lay(0, [blocks(16)])
    with pytest.raises(StorageFull):
        pack.lay(16 * BLOCK, [blocks(512)])
    pack.discard()
    assert not list(small_disk.glob("store/tmp/*"))


def test_a_part_that_is_passing_stays_out_of_memory_and_is_whole(tmp_path: Path) -> None:
    store, data = open_store(tmp_path / "store"), blocks(4096)
    image = tmp_path / "image"
    image.write_bytes(data)
    source = bytearray(data[: 300 * BLOCK])
    with store.draft("sandbox/s", reason="all") as draft:
        draft.put("memory/image", image, split="segment", passing=True)
        draft.put("memory/own", source, split="segment", passing=True)
        source[:] = bytes(len(source))  # it is ours again
        made = draft.commit()
    kept = [page for pack in (tmp_path / "store/packs").iterdir() for page in resident(pack)]
    assert len(kept) > 4096
    assert kept.count(True) < len(kept) // 4  # the first megabyte, and what is read ahead
    assert store.read(made, "memory/image") == data
    assert store.read(made, "memory/own") == data[: 300 * BLOCK]
    assert store.verify(deep=True).ok
