"""The library: finds a chunk, reads it, and never returns a wrong byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.chunks.chunk import RAW, chunk_id, encode
from holdfast.store.chunks.library import Library
from holdfast.store.chunks.packs import PackWriter


def write(place: Path, *plains: bytes) -> Path:
    """A pack with these chunks."""
    writer = PackWriter(LocalBackend(place), b"nonce678")
    for plain in plains:
        codec, stored = encode(plain)
        writer.add(chunk_id(plain), codec, stored, len(plain))
    (name,) = writer.finish()
    return place / "packs" / f"{name.hex()}.pack"


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def library(place: Path) -> Library:
    made = Library(LocalBackend(place))
    made.learn_everything()
    return made


@pytest.mark.parametrize("compressible", [True, False])
def test_chunks_are_found_and_verified(place: Path, noise, compressible: bool) -> None:
    plains = [b"text %d " % i * 500 if compressible else noise(5000, i) for i in range(5)]
    path = write(place, *plains)
    for plain in plains:
        assert bytes(library(place).get(chunk_id(plain))) == plain
        assert bytes(library(place).get_shared(chunk_id(plain))) == plain
    damage(path, 70)
    with pytest.raises(Corrupt) as caught:
        library(place).get(chunk_id(plains[0]))
    assert path.stem in (caught.value.where or "")
    assert bytes(library(place).get(chunk_id(plains[1]))) == plains[1]


def test_another_copy_is_tried_when_one_is_damaged(place: Path, noise) -> None:
    plain = noise(5000)
    first, second = write(place, plain), write(place, plain)
    for path in (first, second):
        before = path.read_bytes()
        damage(path, 100)
        assert bytes(library(place).get(chunk_id(plain))) == plain
        path.write_bytes(before)
    damage(first, 100)
    second.unlink()
    with pytest.raises(Corrupt, match="damaged"):
        library(place).get(chunk_id(plain))


def test_a_pack_that_is_gone_is_said(place: Path, noise) -> None:
    plain = noise(5000)
    path = write(place, plain)
    knowing = library(place)
    path.unlink()
    assert bytes(knowing.get(chunk_id(plain))) == plain  # opened before, and so still there
    with pytest.raises(Corrupt, match="missing"):
        library(place).get(chunk_id(plain))


def test_a_row_that_points_nowhere_is_corrupt(place: Path, noise) -> None:
    plain = noise(5000)
    path = write(place, plain)
    reader = library(place)
    (found,) = reader.index.find(chunk_id(plain))
    for wrong in (
        found._replace(offset=path.stat().st_size),
        found._replace(offset=2**63),
        found._replace(offset=2**64 - 1, stored=2**32 - 1),
        found._replace(stored=2**31),
        found._replace(codec=9),
        found._replace(codec=RAW, plain=17),
    ):
        with pytest.raises(Corrupt):
            reader.read(wrong)


class Counting(LocalBackend):
    """Tells how often it was read from."""

    reads = 0

    def read(self, volume: bytes, offset: int, size: int) -> bytes:
        self.reads += 1
        return super().read(volume, offset, size)


def test_what_lies_together_is_read_together(place: Path, noise) -> None:
    plains = [noise(3000, i) for i in range(100)] + [b"text " * 500]
    write(place, *plains)
    far = noise(400_000)
    write(place, plains[0], far, b"the end")
    backend = Counting(place)
    reader = Library(backend)
    reader.learn_everything()
    backend.reads = 0
    wanted = [chunk_id(plain) for plain in (*plains, b"the end", plains[3])]
    found = reader.get_many(wanted)
    assert {bytes(plain) for plain in found.values()} == {*plains, b"the end"}
    assert list(map(chunk_id, found.values())) == list(found)
    assert backend.reads <= 4
    assert reader.get_many(wanted) == found
    assert backend.reads <= 4, "what was read is kept"
    assert reader.get_many([]) == {}


def test_of_many_a_damaged_one_is_got_elsewhere_or_said(place: Path, noise) -> None:
    plains = [noise(3000, i) for i in range(5)]
    wanted = [chunk_id(plain) for plain in plains]
    first = write(place, *plains)
    damage(first, 70)
    with pytest.raises(Corrupt, match="damaged"):
        library(place).get_many(wanted)
    write(place, plains[0])
    assert list(library(place).get_many(wanted).values()) != []
    assert library(place).get_many(wanted) == dict(zip(wanted, plains, strict=True))
    with pytest.raises(Corrupt, match="missing"):
        library(place).get_many([*wanted, bytes(32)])
