"""A full disk: said clearly, nothing is lost, and when there is room again work goes on."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import StorageFull
from holdfast.store import Store, open_store
from holdfast.store.backends.local.holds import living
from holdfast.store.retention import Last

MB = 2**20
Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """A small file system of one's own."""
    place = tmp_path / "mount"

    def make(options: str, kind: str = "tmpfs") -> Path:
        place.mkdir()
        if kind == "tmpfs":
            command = ["mount", "-t", "tmpfs", "-o", options, "none"]
        else:
            image = tmp_path / "image"
            image.touch()
            os.truncate(image, int(options) * MB)
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
            command = ["mount", "-o", "loop", str(image)]
        subprocess.run([*command, str(place)], check=True)
        return place

    yield make
    subprocess.run(["umount", str(place)], check=True)


def fill_up(folder: Path) -> Path:
    """Take every single block that is left."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (MB, 65536, 4096, 1024, 1):
            try:
                while file.write(bytes(size)) == size:
                    os.fsync(file.fileno())
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017
    return filler


def commit(store: Store, data: bytes, split: str = "whole") -> Checkpoint:
    with store.draft("state/x") as draft:
        draft.put("part", data, split)  # type: ignore[arg-type]
        return draft.commit()


def fill(folder: Path, leave: int) -> Path:
    """Take all space but so many bytes."""
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    (folder / "filler").write_bytes(bytes(max(0, free - leave)))
    return folder / "filler"


def check(place: Path, made: list[tuple[Checkpoint, bytes]], settled: bool = True) -> None:
    """Everything that was acknowledged is there, and nothing else."""
    with open_store(place) as store:
        assert [one.id for one in store.list()] == [one.id for one, _ in made[::-1]]
        for one, data in made:
            assert store.read(one, "part") == data
        for problem in store.verify(deep=True).problems:
            # Until the next append, the remains of the last one cannot be told from damage.
            assert not settled
            assert "interrupted append" in problem.what
            assert problem.affects == ()
    assert not list(place.glob("tmp/*"))
    assert living(place / "holds") == []


@pytest.mark.parametrize("size", [3000, 200_000, 900_000])
def test_small_commits(mount: Mount, noise, size: int) -> None:
    folder = mount("size=6m")
    filler = fill(folder, 3 * MB)
    place = folder / "store"
    made = []
    with open_store(place) as store:
        with pytest.raises(StorageFull, match="No space left") as caught:  # noqa: PT012
            for i in range(2000):
                data = noise(size, i)
                made.append((commit(store, data), data))
        assert "prune" in (caught.value.hint or "")
        assert made
        for _ in range(3):
            with pytest.raises(StorageFull):
                commit(store, noise(900_000, 5))
        check(place, made, settled=False)
        filler.unlink()
        made.append((commit(store, b"room again"), b"room again"))
        check(place, made)
    with open_store(place) as store:
        made.append((commit(store, b"and again"), b"and again"))
    check(place, made)


@pytest.mark.parametrize("split", ["whole", "content", "pages", "segment"])
def test_large_commits(mount: Mount, noise, split: str) -> None:
    folder = mount("size=12m")
    place = folder / "store"
    with open_store(place) as store:
        made = [(commit(store, noise(4 * MB), split), noise(4 * MB))]
        for _ in range(3):
            with pytest.raises(StorageFull) as caught:
                commit(store, noise(10 * MB, 1), split)
            assert caught.value.hint
        check(place, made)
        made.append((commit(store, noise(4 * MB, 2), split), noise(4 * MB, 2)))
    check(place, made)


def test_a_draft_that_met_a_full_disk_cannot_be_committed(mount: Mount, noise) -> None:
    folder = mount("size=12m")
    with open_store(folder / "store") as store, store.draft("state/x") as draft:
        draft.put("fits", noise(3 * MB))
        with pytest.raises(StorageFull):
            draft.put("part", noise(20 * MB, 1))
        with pytest.raises(Exception, match="finished"):
            draft.commit()
    check(folder / "store", [])


def test_reading_needs_no_room(mount: Mount, noise) -> None:
    folder = mount("size=8m,nr_inodes=200")
    place = folder / "store"
    with open_store(place) as store:
        made = commit(store, noise(2 * MB), "segment")
    fill(folder, 0)
    for i in range(300):  # no room for another file, either
        try:
            (folder / f"file{i}").touch()
        except OSError:
            break
    with open_store(place) as store:
        assert store.read(made, "part") == noise(2 * MB)
        with store.map(made, "part", verify="first") as mapping:
            assert bytes(mapping.view) == noise(2 * MB)
        assert store.verify(deep=True).ok
        with pytest.raises(StorageFull) as caught:
            store.draft("state/x")
        assert caught.value.hint
        with pytest.raises(StorageFull):
            store.prune(Last(1))


def test_prune_makes_room_on_a_disk_that_is_nearly_full(mount: Mount, noise) -> None:
    folder = mount("size=16m")
    place = folder / "store"
    with open_store(place) as store:
        made = [(commit(store, noise(3 * MB, i)), noise(3 * MB, i)) for i in range(4)]
        fill(folder, 100_000)
        with pytest.raises(StorageFull):
            commit(store, noise(3 * MB, 9))
        report = store.prune(Last(2))
        assert report.reclaimed_bytes > 5.9 * MB
        made = made[2:]
        made.append((commit(store, noise(3 * MB, 9)), noise(3 * MB, 9)))
    check(place, made)


def crowd(store: Store) -> None:
    """So many small ones that dropping them does not fit into what is left of a block."""
    for i in range(260):
        commit(store, b"%d" % i)


@pytest.mark.parametrize(("kind", "size"), [("tmpfs", "size=16m"), ("ext4", "16")])
def test_prune_makes_room_where_there_is_none_at_all(mount: Mount, noise, kind, size) -> None:
    """A store keeps a little in reserve for the entries that let space be freed."""
    folder = mount(size, kind)
    place = folder / "store"
    for turn in range(2):
        with open_store(place) as store:
            commit(store, noise(3 * MB, turn))
            crowd(store)
            kept = noise(3 * MB, turn + 10)
            made = [(commit(store, kept), kept)]
        filler = fill_up(folder)
        with open_store(place) as store:
            with pytest.raises(StorageFull):
                commit(store, noise(3 * MB, 9))
            with pytest.raises(StorageFull):  # also one that would fit into the reserve
                commit(store, noise(20_000, 9))
            assert store.prune(Last(1)).reclaimed_bytes > 2.9 * MB
            assert (place / "reserve").stat().st_size > 0  # for the next time
            check(place, made)
        filler.unlink()


def test_a_log_can_be_folded_where_there_is_no_room_at_all(mount: Mount, noise) -> None:
    folder = mount("size=8m")
    place = folder / "store"
    with open_store(place) as store:
        made = [(commit(store, noise(9000, i)), noise(9000, i)) for i in range(100)]
        fill_up(folder)
        assert store.prune(Last(2)).reclaimed_bytes > 800_000
        made = [*made[-2:], (commit(store, noise(9000, 200)), noise(9000, 200))]
    check(place, made)


def test_a_reserve_that_somebody_deleted_is_kept_again(mount: Mount, noise) -> None:
    folder = mount("size=16m")
    place = folder / "store"
    with open_store(place) as store:
        commit(store, noise(3 * MB))
        crowd(store)
    with open_store(place) as store:  # nothing is laid out ahead of the log's end any more
        (place / "reserve").unlink()
        filler = fill_up(folder)
        with pytest.raises(StorageFull) as caught:
            store.prune(Last(1))
        assert caught.value.hint
        filler.unlink()
        commit(store, b"makes another one")
        fill_up(folder)
        assert store.prune(Last(1)).reclaimed_bytes > 2.9 * MB


def test_prune_that_has_no_room_to_move_things(mount: Mount, noise) -> None:
    folder = mount("size=16m")
    place = folder / "store"
    with open_store(place) as store:
        with store.draft("state/x") as draft:
            draft.put("junk", noise(5 * MB))
            draft.put("part", noise(2 * MB, 1))
            draft.commit()
        with store.draft("state/x") as draft:
            draft.keep("part")
            made = [(draft.commit(), noise(2 * MB, 1))]
        store.delete("state/x~1")
        filler = fill(folder, MB)  # two are needed
        with pytest.raises(StorageFull, match="bytes that stay have to be moved") as caught:
            store.prune()
        assert caught.value.hint is not None
        assert "holdfast prune" not in caught.value.hint  # which is what could not be done
        check(place, made)
        filler.unlink()
        assert store.prune().reclaimed_bytes > 4.9 * MB
        made.append((commit(store, b"more"), b"more"))
    check(place, made)


def test_what_is_dead_makes_room_for_what_is_moved(mount: Mount, noise) -> None:
    folder = mount("size=16m")
    place = folder / "store"
    with open_store(place) as store:
        dead = commit(store, noise(3 * MB, 7))
        with store.draft("state/x") as draft:
            draft.put("junk", noise(5 * MB))
            draft.put("part", noise(2 * MB, 1))
            mostly_dead = draft.commit()
        with store.draft("state/x") as draft:
            draft.keep("part")
            made = [(draft.commit(), noise(2 * MB, 1))]
        store.delete(dead, mostly_dead)
        fill(folder, 100_000)
        assert store.prune().reclaimed_bytes > 7.9 * MB
    check(place, made)


def test_an_older_checkpoint_goes_only_after_a_newer_one_is_safe(mount: Mount, noise) -> None:
    """Whoever keeps one checkpoint and saves before pruning always has one."""
    folder = mount("size=10m")
    place = folder / "store"
    with open_store(place) as store:
        made = [(commit(store, noise(4 * MB)), noise(4 * MB))]
        for i in range(4):
            with pytest.raises(StorageFull):
                commit(store, noise(6 * MB, i + 1))
            store.prune(Last(1))
            check(place, made)
