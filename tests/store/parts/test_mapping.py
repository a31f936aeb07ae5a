"""Mappings: a part as memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from holdfast.model.errors import Corrupt
from holdfast.store import Store, open_store
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.backends.local.holds import living
from holdfast.store.keys import load_keyring
from holdfast.store.origin import Origin
from holdfast.store.parts.pagereader import PageReader

PAGE = 4096
SIZE = 3_000_000


@pytest.mark.parametrize("skew", [0, 16])
def test_a_segment_is_mapped_and_not_read(store: Store, save, noise, skew: int) -> None:
    data = noise(SIZE)
    checkpoint = save(data, "segment", skew=skew)
    with store.map(checkpoint, "part") as mapping:
        assert mapping.mapped_bytes > SIZE - 64 * PAGE  # all but the end
        assert bytes(mapping.view) == data
        assert mapping.view.readonly
        mapping.check()
        assert mapping.verified


@pytest.mark.parametrize("split", ["whole", "content", "pages", "segment"])
@pytest.mark.parametrize("size", [0, 1, 5000, 2_000_000])
def test_every_part_can_be_had_in_memory(store: Store, save, noise, split: Any, size: int) -> None:
    with store.map(save(noise(size), split), "part", verify="first") as mapping:
        assert bytes(mapping.view) == noise(size)
        assert mapping.verified


def test_writing_to_a_mapping_does_not_change_the_store(
    store: Store, save, noise, place: Path, look
) -> None:
    data = noise(SIZE)
    checkpoint = save(data, "segment")
    before = look(place)
    one = store.map(checkpoint, "part", writable=True)
    other = store.map(checkpoint, "part", writable=True)
    one.view[:] = bytes(SIZE)
    one.check()  # what is verified is the store, not memory that may change
    assert bytes(other.view) == data
    assert store.read(checkpoint, "part") == data
    other.check()
    one.close()
    other.close()
    wait_until(lambda: look(place) == before)


def test_a_mapping_survives_delete_and_prune(store: Store, save, noise, place: Path) -> None:
    data = noise(SIZE)
    mapping = store.map(save(data, "segment"), "part", verify="first")
    store.delete("state/x")
    assert store.prune().reclaimed_bytes > SIZE
    assert not list(place.glob("packs/*"))
    assert bytes(mapping.view) == data
    mapping.close()


def test_an_array_made_from_a_mapping_outlives_it(store: Store, save, noise) -> None:
    mapping = store.map(save(noise(SIZE), "segment"), "part", writable=True)
    array = np.frombuffer(mapping.view, dtype=np.uint8)
    expected = int(array.sum())
    mapping.close()
    del mapping
    gc.collect()
    assert int(array.sum()) == expected


def test_pages_that_changed_since_are_mapped_too(store: Store, save, noise) -> None:
    data = bytearray(noise(SIZE))
    for step in range(5):
        for page in range(step, SIZE // PAGE, 97):
            data[page * PAGE] ^= 0xFF
        checkpoint = save(data, "segment")
    with store.map(checkpoint, "part", verify="first") as mapping:
        assert bytes(mapping.view) == data
        assert mapping.mapped_bytes > SIZE * 0.9


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def flip(place: Path, data: bytes) -> None:
    """Change one bit of the raw copy of these bytes."""
    for path in place.glob("packs/*.pack"):
        stored = bytearray(path.read_bytes())
        if (at := stored.find(data)) >= 0:
            stored[at] ^= 1
            path.write_bytes(stored)
            return
    raise AssertionError("the bytes are not in a pack")


def test_a_flipped_bit_is_found_in_the_background(store, save, noise, place: Path) -> None:
    data = noise(SIZE)
    checkpoint = save(data, "segment")
    flip(place, data[2 * PAGE : 3 * PAGE])
    mapping = store.map(checkpoint, "part")
    wait_until(lambda: mapping.verified is not None)
    assert mapping.verified is False
    with pytest.raises(Corrupt):
        mapping.check()
    with pytest.raises(Corrupt, match="damaged"):
        store.map(checkpoint, "part", verify="first")
    mapping.close()
    wait_until(lambda: not living(place / "holds"))


def test_the_copy_that_is_mapped_is_the_one_that_is_verified(
    store: Store, save, place: Path
) -> None:
    data = b"".join(b"%015d\n" % i for i in range(SIZE // 16))
    other = save(data, "pages", subject="session/a")  # compressed, so it cannot be mapped
    mapped = save(data, "segment", subject="session/b")
    flip(place, data[: 2 * PAGE])
    for first, then in ((mapped, other), (other, mapped)):
        with open_store(place) as again:
            for checkpoint in (first, then):
                # The damage is said, or another copy is shown.
                with (
                    suppress(Corrupt),
                    again.map(checkpoint, "part", verify="first") as mapping,
                ):
                    assert bytes(mapping.view) == data


def test_a_missing_pack_is_said(store: Store, save, noise, place: Path) -> None:
    checkpoint = save(noise(SIZE), "segment")
    for pack in place.glob("packs/*"):
        pack.unlink()
    with open_store(place) as again:
        with pytest.raises(Corrupt, match="missing"):
            again.map(checkpoint, "part")
        with pytest.raises(Corrupt, match="missing"):
            again.read(checkpoint, "part")
        assert not again.verify().ok
    assert living(place / "holds") == []


CUT = """
import os, sys
from pathlib import Path
from holdfast.store import open_store
with open_store(sys.argv[1]) as store:
    (saved,) = store.list()
    store.map(saved, "part", verify="first").close()  # its tables are known
    for pack in Path(sys.argv[1], "packs").iterdir():
        os.truncate(pack, 4096)
    try:
        print(sum(store.map(saved, "part").view[::4096]))
    except Exception as error:
        print(type(error).__name__, "ends before" in str(error))
"""


def test_a_pack_that_was_cut_off_is_said(store: Store, save, noise, place: Path) -> None:
    """Memory behind the end of a file ends whoever reads it."""
    save(noise(SIZE), "segment")
    told = subprocess.run([sys.executable, "-c", CUT, place], capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, "Corrupt True\n"), told.stderr


@pytest.mark.parametrize("split", ["segment", "pages"])
def test_a_map_that_leads_out_of_its_part_is_corrupt(store: Store, save, noise, split: Any) -> None:
    """There is room for the part and no more: what lay behind it would be overwritten."""
    save(noise(SIZE), split)
    ledger = store._ledger
    (record,) = ledger.catalogue.records.values()
    part = Origin.of(ledger, record).parts["part"]
    PageReader(ledger.library, part).tables()
    pages = -(-SIZE // PAGE)
    shorter = msgspec.structs.replace(part, size=(pages - 1) * PAGE)
    with pytest.raises(Corrupt, match="outside of it"):
        PageReader(ledger.library, shorter).tables()


class Vanishing(LocalBackend):
    """A store in which a pack goes as soon as somebody wants to map it."""

    def path(self, volume: bytes) -> Path | None:
        found = super().path(volume)
        if found is not None and volume in self._open._files:  # its table was read before
            found.unlink()
        return found


def test_a_pack_that_goes_while_it_is_mapped_is_said(place: Path, store, save, noise) -> None:
    saved = save(noise(2_000_000), "segment")
    with pytest.raises(Corrupt, match="deleted") as caught:
        Store(Vanishing(place), load_keyring()).map(saved, "part")
    assert "again" in (caught.value.hint or "")
    assert living(place / "holds") == []


def test_a_store_in_memory_gives_copies() -> None:
    with open_store("memory://") as store, store.draft("session/x") as draft:
        draft.put("part", bytes(range(256)) * 8000, "segment")
        checkpoint = draft.commit()
        with store.map(checkpoint, "part", writable=True, verify="first") as mapping:
            assert mapping.mapped_bytes == 0
            mapping.view[0] = 255
        assert store.read(checkpoint, "part")[0] == 0


def test_a_segment_is_mapped_also_where_the_same_bytes_are_stored_otherwise(
    store: Store, noise
) -> None:
    half = noise(600 * PAGE // 2)  # the other half compresses, so that the copies differ
    size = PAGE // 2
    data = b"".join(half[i : i + size].ljust(PAGE, b"-") for i in range(0, len(half), size))
    with store.draft("session/both") as draft:
        draft.put("pages", data, split="pages")
        draft.commit()
    with store.draft("session/both") as draft:
        draft.put("segment", data, split="segment")
        draft.commit()
    with store.map("session/both", "segment", verify="first") as mapping:
        assert mapping.mapped_bytes > len(data) - 64 * PAGE
        assert bytes(mapping.view) == data
