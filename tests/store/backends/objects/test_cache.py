"""The cache: bytes of a bucket on this machine, within a limit, and never trusted."""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast.store.backends.objects.cache import Cache


def test_what_is_added_is_found_until_it_is_dropped(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.read("packs/a") is None
    cache.add("packs/a", b"data")
    assert cache.read("packs/a") == b"data"
    assert Cache(tmp_path).path("packs/a") == tmp_path / "packs/a"
    assert cache.drop("packs/a")
    assert not cache.drop("packs/a")
    assert cache.path("packs/a") is None


def age(cache: Cache, key: str, seconds: float) -> None:
    when = time.time() - seconds
    os.utime(cache.root / key, (when, when))


def test_the_limit_is_kept_and_what_was_used_last_stays(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=1000)
    for number in range(3):
        cache.add(f"packs/{number}", bytes(300))
        age(cache, f"packs/{number}", 1000 - number)
    cache.read("packs/0")  # which makes it young
    cache.add("packs/3", bytes(300))
    left = {path.name for path in (tmp_path / "packs").iterdir()}
    assert left == {"0", "2", "3"}


def test_a_cache_that_is_too_large_is_made_smaller_when_it_is_opened(tmp_path: Path) -> None:
    first = Cache(tmp_path)
    for number in range(4):
        first.add(f"packs/{number}", bytes(300))
        age(first, f"packs/{number}", 1000 - number)
    Cache(tmp_path, limit=700)
    assert {path.name for path in (tmp_path / "packs").iterdir()} == {"2", "3"}


def test_what_was_left_half_written_long_ago_is_swept_up(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for name in ("old", "new"):
        (tmp_path / "tmp" / name).write_bytes(b"x")
    age(cache, "tmp/old", 2 * 24 * 3600)
    Cache(tmp_path)
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["new"]


def test_where_nothing_can_be_written_a_temporary_one_does(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = Cache(tmp_path / "file" / "below")
    cache.add("packs/a", b"data")
    assert cache.read("packs/a") == b"data"
    folder = cache.root
    assert not folder.is_relative_to(tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700
    del cache
    assert not folder.exists()


def test_a_full_disk_is_no_reason_to_fail(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    (tmp_path / "packs").rmdir()
    cache.add("packs/a", b"data")  # the folder is gone: the next best thing to a full disk
    assert cache.read("packs/a") is None
