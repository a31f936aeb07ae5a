"""While the log cannot be read in full, nothing is deleted: an entry that is lost may have spoken
of what seems to be dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt
from holdfast.store import Store, open_store
from holdfast.store.log.entries import Commit, Label, Relocate, decode_entry
from holdfast.store.log.frames import Frame, scan
from holdfast.store.retention import Last

MB = 1_000_000
FOLD = 5 * MB  # a log of that length is folded


def frames(path: Path) -> list[Frame]:
    return scan(path.read_bytes()[64:], bytes.fromhex(path.stem[17:]), base=64, file="").frames


def damage(path: Path, kind: type, number: int = -1) -> None:
    """Flip a bit in the header of an entry of this kind."""
    found = [one for one in frames(path) if isinstance(decode_entry(one.header), kind)]
    data = bytearray(path.read_bytes())
    data[data.find(found[number].header) + 9] ^= 4
    path.write_bytes(data)


def packs(place: Path) -> set[str]:
    return {path.name for path in place.glob("packs/*.pack")}


def newest(place: Path, kind: str = "log") -> Path:
    return max(place.glob(f"log/*.{kind}"))


def test_the_packs_of_an_entry_that_cannot_be_read_stay(place, store: Store, save, noise) -> None:
    for i in range(3):
        save(noise(2 * MB, i))
    damage(newest(place), Commit, 1)
    before = packs(place)
    with open_store(place) as again:
        with pytest.raises(Corrupt, match="log") as caught:
            again.prune(Last(1))
        assert "verify" in (caught.value.hint or "")
        assert "--accept-loss" in (caught.value.hint or "")
        assert len(again.list()) == 2
    assert packs(place) == before


def test_a_pin_that_cannot_be_read_may_be_one(place: Path, store: Store, save) -> None:
    pinned = save(b"first")
    store.pin(pinned)
    save(b"second")
    damage(newest(place), Label)
    with open_store(place) as again:
        with pytest.raises(Corrupt):
            again.prune(Last(1))
        assert again.read(pinned, "part") == b"first"


def fold(store: Store, save, noise) -> None:
    for i in range(FOLD // 800_000 + 1):
        save(noise(800_000, 100 + i), subject=f"state/long-{i}")
    store.prune()


def test_a_damaged_snapshot_counts_too(place: Path, store: Store, save, noise) -> None:
    for i in range(2):
        save(noise(2 * MB, i))
    fold(store, save, noise)
    damage(newest(place, "snap"), Commit, 0)
    before = packs(place)
    with open_store(place) as again, pytest.raises(Corrupt):
        again.prune(Last(1))
    assert packs(place) == before


def test_the_dry_run_says_so_and_goes_on(place: Path, store: Store, save, noise) -> None:
    for i in range(3):
        save(noise(100, i))
    damage(newest(place), Commit, 1)
    with open_store(place) as again:
        report = again.prune(Last(1), dry_run=True)
        assert len(report.removed) == 1
        assert any("entry 2" in str(problem) for problem in report.problems)


def test_where_the_chunks_went_is_not_forgotten_with_the_entry_that_said_so(
    place: Path, store: Store, save, noise
) -> None:
    """The last entry of all: nothing behind it shows that it is missing."""
    half = noise(MB, 1)
    save(half + noise(4 * MB, 2), "pages")
    kept = save(half, "pages")
    store.prune(Last(1))
    log = newest(place)
    whole = log.read_bytes()
    assert isinstance(decode_entry(frames(log)[-1].header), Relocate)
    damage(log, Relocate)
    with open_store(place) as again:
        again.prune(Last(1))  # it may also be an interrupted append
    log.write_bytes(whole)
    with open_store(place) as mended:
        assert mended.read(kept, "part") == half


def test_whoever_accepts_the_loss_gets_a_sound_store_again(
    place: Path, store: Store, save, noise
) -> None:
    made = [save(noise(2 * MB, i)) for i in range(3)] + [save(noise(3000, 9), subject="state/y")]
    damage(newest(place), Commit, 1)
    with open_store(place) as again:
        report = again.prune(Last(5), accept_loss=True)
        assert report.reclaimed_bytes > 1.9 * MB
        assert again.verify(deep=True).ok
    with open_store(place) as later:
        assert later.verify(deep=True).ok
        assert {one.id for one in later.list()} == {made[i].id for i in (0, 2, 3)}
        assert later.read(made[2], "part") == noise(2 * MB, 2)
        assert later.read(made[3], "part") == noise(3000, 9)
        assert later.prune(Last(1)).removed
        assert save(b"more", into=later).parents == (made[2].id,)


def test_the_remains_of_a_write_that_failed_are_no_reason_to_refuse(
    place: Path, store: Store, save, noise
) -> None:
    for i in range(3):
        save(noise(2 * MB, i))
    with newest(place).open("ab") as log:
        log.write(bytes(8))  # what a writer leaves that met a full disk
    with open_store(place) as again:
        assert again.prune(Last(1)).reclaimed_bytes > 3.9 * MB
