"""Verifying: a flipped bit anywhere is named, and wrong bytes are never returned."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Progress

from holdfast.model.errors import HoldfastError
from holdfast.store import Store, open_store
from holdfast.store.keys import Key, Keyring

_STRETCH = re.compile(r"volume (?P<volume>[0-9a-f]+), bytes (?P<start>\d+) to (?P<end>\d+)")
DATA = Path(__file__).resolve().parents[1] / "data"


class Subject:
    """A copy of the committed store, which has every kind of file and part, to be damaged."""

    def __init__(self, place: Path) -> None:
        self.place = Path(shutil.copytree(DATA / "store-v1" / "store", place))
        spec = importlib.util.spec_from_file_location("make_store_v1", DATA / "make_store_v1.py")
        assert spec is not None
        assert spec.loader is not None
        maker = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(maker)
        expected = json.loads((DATA / "store-v1" / "expected.json").read_text())
        self.keyring = Keyring(Key(maker.OURS))
        self.parts = {one["id"]: maker.contents(one["step"]) for one in expected["store"]}

    def open(self) -> Store:
        return open_store(self.place, create=False, keyring=self.keyring)

    def is_named(self, *, reading: bool = True) -> bool:
        """Whether opening or verifying names a problem; every part is right or refused. Without
        reading, what is known as soon as the store is open is not asked for once more."""
        try:
            store = self.open()
        except HoldfastError:
            return True
        with store:
            if not reading and store._ledger.catalogue.problems:
                return True
            try:
                named = not store.verify(deep=True).ok
            except HoldfastError:
                named = True
            if reading:
                self._check_parts(store)
        return named

    def _check_parts(self, store: Store) -> None:
        for checkpoint, parts in self.parts.items():
            for name, (split, expected) in parts.items():
                self._check_part(store, checkpoint, name, split, expected)

    def _check_part(self, store: Store, checkpoint: str, name: str, split: str, expected: Any):
        reads = store.value if split == "structure" else store.read
        try:
            found = reads(checkpoint, name, trust=True)
        except HoldfastError:
            return
        assert found == expected

    def flip(
        self,
        path: Path,
        positions: Sequence[int],
        progress: Progress = lambda done, total: None,
        *,
        read_every: int = 1,
    ) -> list[tuple[int, int]]:
        """Flip a bit at each position in turn; returns the flips that nobody noticed. After every
        `read_every`th, everything is verified and read."""
        unnoticed = []
        fd = os.open(path, os.O_RDWR)
        try:
            for done, at in enumerate(positions):
                progress(done, len(positions))
                before = os.pread(fd, 1, at)
                bit = at % 8 if at % 3 else (at // 7) % 8
                os.pwrite(fd, bytes([before[0] ^ 1 << bit]), at)
                if not self.is_named(reading=done % read_every == 0):
                    unnoticed.append((at, bit))
                os.pwrite(fd, before, at)
        finally:
            os.close(fd)
        return unnoticed

    def unnamed(self, path: Path, places: set[int], *, reading: bool) -> set[int]:
        """Flip a bit at each of these places of a pack at once; those that no problem names."""
        whole = path.read_bytes()
        flipped = bytearray(whole)
        for at in places:
            flipped[at] ^= 1 << at % 8
        path.write_bytes(flipped)
        with self.open() as store:
            told = [_STRETCH.search(problem.where) for problem in store.verify(deep=True).problems]
            if reading:
                self._check_parts(store)
        path.write_bytes(whole)
        stretches = [
            range(int(found["start"]), int(found["end"]))
            for found in told
            if found is not None and found["volume"] == path.stem
        ]
        return {at for at in places if not any(at in stretch for stretch in stretches)}


@pytest.fixture
def victim(tmp_path: Path) -> Subject:
    return Subject(tmp_path / "store")


def test_the_undamaged_store_is_fine(victim: Subject) -> None:
    assert not victim.is_named()


def test_every_byte_of_the_marker(victim: Subject) -> None:
    marker = victim.place / "holdfast.json"
    assert victim.flip(marker, range(marker.stat().st_size)) == []


@pytest.mark.parametrize("pattern", ["log/*.log", "log/*.snap"])
def test_the_log(victim: Subject, pattern: str) -> None:
    for path in victim.place.glob(pattern):
        size = path.stat().st_size
        around = [*range(0, 200, 7), *range(200, size, max(1, size // 130)), size - 1]
        assert victim.flip(path, around) == []


def test_the_packs(victim: Subject) -> None:
    for path in victim.place.glob("packs/*.pack"):
        size = path.stat().st_size
        table = struct.unpack_from("<Q", path.read_bytes(), size - 48)[0]
        chunks = range(64, table, max(1, table // 150))
        places = [
            *range(0, 64, 4),
            *chunks,
            *range(table, size - 64, 31),
            *range(size - 64, size, 4),
        ]
        assert victim.flip(path, places) == []


def test_bits_of_a_compressed_form_that_change_nothing_are_named_too(victim: Subject) -> None:
    for path in victim.place.glob("packs/*.pack"):
        pack = path.read_bytes()
        table, count = struct.unpack_from("<QQ", pack, len(pack) - 48)
        rows = [struct.unpack_from("<QIIB", pack, table + 64 * i + 32) for i in range(count)]
        headers = [offset + 4 for offset, _, _, codec in rows if codec == 1]
        assert headers
        for at in headers[:10]:
            path.write_bytes(pack[:at] + bytes([pack[at] ^ 0x10]) + pack[at + 1 :])
            assert victim.is_named()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("pattern", ["log/*.log", "log/*.snap"])
def test_every_byte_of_the_log(victim: Subject, pattern: str, progress: Progress) -> None:
    """Opening the store finds each flip, or verifying names it. After every 16th everything is
    verified and read: that takes ten times as long."""
    for path in victim.place.glob(pattern):
        assert victim.flip(path, range(path.stat().st_size), progress, read_every=16) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_byte_of_the_packs(victim: Subject, progress: Progress) -> None:
    """Each chunk is named for itself, so one byte of every chunk is flipped at the same time."""
    for path in victim.place.glob("packs/*.pack"):
        pack = path.read_bytes()
        table, count = struct.unpack_from("<QQ", pack, len(pack) - 48)
        rows = [struct.unpack_from("<QI", pack, table + 64 * i + 32) for i in range(count)]
        longest = max(stored for _, stored in rows)
        for within in range(longest):
            progress(within, longest)
            places = {offset + within for offset, stored in rows if within < stored}
            assert victim.unnamed(path, places, reading=within % 16 == 0) == set()
        covered = {at for offset, stored in rows for at in range(offset, offset + stored)}
        others = sorted(set(range(len(pack))) - covered)
        assert victim.flip(path, others, progress, read_every=16) == []


@pytest.mark.parametrize("pattern", ["log/*.log", "log/*.snap", "packs/*.pack", "holdfast.json"])
@pytest.mark.parametrize("left", [0, 1, 63, 64, 100, 2000, -1, -8])
def test_a_file_that_was_cut_short(victim: Subject, pattern: str, left: int) -> None:
    for path in victim.place.glob(pattern):
        os.truncate(path, left if left >= 0 else path.stat().st_size + left)
    if (pattern, left) != ("log/*.log", 64):  # nothing but a head: a segment without entries
        assert victim.is_named()


@pytest.mark.parametrize("pattern", ["log/*.snap", "packs/*.pack", "holdfast.json"])
def test_a_file_that_is_gone(victim: Subject, pattern: str) -> None:
    for path in victim.place.glob(pattern):
        path.unlink()
    assert victim.is_named()


def test_a_snapshot_that_lost_its_last_entries(victim: Subject) -> None:
    (path,) = victim.place.glob("log/*.snap")
    data, marker = path.read_bytes(), bytes.fromhex(path.stem.partition("-")[2])
    ends = [at for at in range(64, len(data), 8) if data[at : at + 16] == marker]
    assert len(ends) > 5
    for end in ends:
        os.truncate(path, end)
        assert victim.is_named()
        path.write_bytes(data)
    assert not victim.is_named()


def test_files_that_were_exchanged(victim: Subject) -> None:
    log, snapshot = (next(victim.place.glob(f"log/*.{kind}")) for kind in ("log", "snap"))
    one, other = log.read_bytes(), snapshot.read_bytes()
    log.write_bytes(other)
    snapshot.write_bytes(one)
    assert victim.is_named()


def test_a_problem_says_where_what_and_whom_it_affects(store, save, place: Path, noise) -> None:
    damaged = save(noise(2_000_000), subject="session/a")
    pack = next(place.glob("packs/*.pack"))
    fine = save(noise(2_000_000, 1), subject="session/b")
    data = bytearray(pack.read_bytes())
    data[500_000] ^= 1
    pack.write_bytes(data)
    assert store.verify().ok  # not deep: the bytes themselves are not read
    seen: list[tuple[int, int]] = []
    report = store.verify(deep=True, progress=lambda done, total: seen.append((done, total)))
    assert not report.ok
    assert {affected for problem in report.problems for affected in problem.affects} == {damaged.id}
    assert any(pack.stem in problem.where for problem in report.problems)
    assert all(problem.hint and str(problem) for problem in report.problems)
    assert report.bytes_read >= 4_000_000
    assert seen
    assert seen[-1][0] <= seen[-1][1]
    assert store.read(fine, "part") == noise(2_000_000, 1)
    with pytest.raises(HoldfastError, match="damaged"):
        store.read(damaged, "part")


def test_a_damaged_entry_hides_no_other(store: Store, save, place: Path, noise) -> None:
    made = [save(noise(100, i)) for i in range(5)]
    log = next(place.glob("log/*.log"))
    data = bytearray(log.read_bytes())
    at = data.find(noise(100, 2))
    data[at] ^= 1
    log.write_bytes(data)
    with open_store(place) as again:
        found = [one.id for one in again.list()]
        assert found == [one.id for one in made[::-1] if one != made[2]]
        problems = [str(problem) for problem in again.verify().problems]
        assert any("entry 3" in text for text in problems)
        assert save(b"more", into=again).parents == (made[4].id,)
        assert again.read(made[4], "part") == noise(100, 4)
