"""Packs: files of chunks that end with a table of them."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from blake3 import blake3

from holdfast.model.errors import Corrupt, HoldfastError, Unsupported
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.chunks import packs
from holdfast.store.chunks.chunk import RAW, ZSTD, chunk_id, encode
from holdfast.store.chunks.packs import PackWriter, check_head, read_table

NONCE = b"12345678"


@pytest.fixture
def backend(place: Path) -> LocalBackend:
    return LocalBackend(place)


def test_a_pack_is_laid_out_as_the_specification_says(backend, place: Path, noise) -> None:
    writer = PackWriter(backend, NONCE)
    plains = [noise(100), b"text " * 1000, noise(5000, 1), noise(4096, 2)]
    for i, plain in enumerate(plains):
        codec, stored = (RAW, plain) if i > 1 else encode(plain)
        place_ = writer.add(chunk_id(plain), codec, stored, len(plain), aligned=i > 1)
        assert place_.volume[:8] == NONCE
        assert i < 2 or place_.offset % 4096 == 0
    (name,) = writer.finish()
    data = (place / "packs" / f"{name.hex()}.pack").read_bytes()
    assert data[:16] == b"HOLDFAST-PACK\0\0\0"
    assert data[32:48] == name
    assert data[48:64] == blake3(data[:48]).digest()[:16]
    foot = data[-64:]
    assert foot[:16] == b"HOLDFAST-TABLE\0\0"
    table, count = struct.unpack_from("<QQ", foot, 16)
    assert count == 4
    assert table + 64 * 5 == len(data)
    assert foot[48:] == blake3(data[table:-64] + foot[:48]).digest()[:16]
    rows = [data[table + 64 * i : table + 64 * (i + 1)] for i in range(count)]
    assert [row[:32] for row in rows] == sorted(chunk_id(plain) for plain in plains)
    covered = bytearray(table)
    for row in rows:
        offset, stored_size, plain_size, codec = struct.unpack_from("<QIIB", row, 32)
        stored = data[offset : offset + stored_size]
        plain = next(plain for plain in plains if chunk_id(plain) == row[:32])
        assert (codec == RAW) == (stored == plain)
        assert plain_size == len(plain)
        assert row[49:56] == bytes(7)
        assert row[56:] == (blake3(stored).digest()[:8] if codec == ZSTD else bytes(8))
        covered[offset : offset + stored_size] = b"\1" * stored_size
    assert not any(data[i] for i in range(64, table) if not covered[i])


def test_many_threads_fill_many_packs(backend, noise) -> None:
    writer = PackWriter(backend, NONCE)
    large = noise(14 * 2**20)
    plains = [memoryview(large)[i:] for i in range(12)]
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda plain: writer.add(chunk_id(plain), RAW, plain, len(plain)), plains)
        )
    names = writer.finish()
    assert len(names) == 2
    assert {place.volume for place in found} == set(names)
    for plain, place in zip(plains, found, strict=True):
        assert backend.read(place.volume, place.offset, place.stored) == plain
    sizes = {volume.name: volume.size for volume in backend.volumes()}
    assert sum(len(read_table(backend, name, sizes[name])) for name in names) == 12
    assert max(sizes.values()) < backend.pack_limit + 4096


def test_what_is_passing_lies_in_order_beside_the_rest(backend, noise) -> None:
    writer = PackWriter(backend, NONCE)
    plains = [noise(size, i) for i, size in enumerate([256 * 1024] * 12 + [5000, 4096, 100])]
    found = []
    for i, plain in enumerate(plains):
        found.append(
            writer.add(chunk_id(plain), RAW, plain, len(plain), aligned=True, passing=True)
        )
        if i % 5 == 0:  # of another part
            found.append(writer.add(chunk_id(plain[:9]), RAW, plain[:9], 9))
    writer.written()
    (name,) = writer.finish()
    assert [place.offset for place in found] == sorted(place.offset for place in found)
    for place in found:
        data = backend.read(name, place.offset, place.stored)
        assert chunk_id(data) in {chunk_id(plain[: place.stored]) for plain in plains}
    assert found[2].offset % 4096 == 0
    assert found[2].offset + found[2].stored == found[3].offset


def test_what_is_passing_fills_packs_and_is_published_with_them(backend, noise) -> None:
    writer = PackWriter(backend, NONCE)
    large = noise(14 * 2**20)
    plains = [memoryview(large)[i * 4096 :] for i in range(12)]
    found = [writer.add(chunk_id(p), RAW, p, len(p), aligned=True, passing=True) for p in plains]
    names = writer.finish()
    assert len(names) == 2
    for plain, place in zip(plains, found, strict=True):
        assert backend.read(place.volume, place.offset, place.stored) == plain


def test_what_is_passing_and_fails_is_told(backend, place: Path, noise) -> None:
    writer = PackWriter(backend, NONCE)
    writer.add(chunk_id(b"x"), RAW, NotBytes(), 1, passing=True)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        writer.written()
    with pytest.raises(HoldfastError, match="could not be written"):
        writer.finish()
    plain = noise(8192)
    writer.add(chunk_id(plain), RAW, plain, len(plain), aligned=True, passing=True)
    writer.discard()  # though nobody has begun to write it
    assert not list(place.glob("tmp/*")) + list(place.glob("packs/*"))


def test_a_failure_among_many_that_wait_publishes_nothing(backend, place: Path, noise) -> None:
    """Whoever hears of it has given away what came behind it, and that is written all the same."""
    writer = PackWriter(backend, NONCE)
    writer.add(chunk_id(b"x"), RAW, NotBytes(), 1, passing=True)  # type: ignore[arg-type]
    plain, heard = noise(2**20), 0
    for i in range(3 * packs._WAITING):
        try:
            writer.add(bytes([i]) * 32, RAW, plain, len(plain), aligned=True, passing=True)
        except TypeError:
            heard += 1
    assert heard == 1
    writer.written()
    with pytest.raises(HoldfastError, match="could not be written"):
        writer.finish()
    writer.discard()
    assert not list(place.glob("tmp/*")) + list(place.glob("packs/*"))


def test_what_is_discarded_leaves_no_file(backend, place: Path, noise) -> None:
    writer = PackWriter(backend, NONCE)
    writer.add(chunk_id(b"x"), RAW, b"x", 1)
    assert list(place.glob("tmp/*"))
    writer.discard()
    writer.discard()
    assert not list(place.glob("tmp/*")) + list(place.glob("packs/*"))


def test_a_pack_in_which_a_write_failed_is_never_published(backend, place: Path) -> None:
    writer = PackWriter(backend, NONCE)
    writer.add(chunk_id(b"x"), RAW, b"x", 1)
    with pytest.raises(TypeError):
        writer.add(chunk_id(b"y"), RAW, NotBytes(), 1)  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="could not be written"):
        writer.finish()
    writer.discard()
    assert not list(place.glob("packs/*"))


class NotBytes:
    """Has a length, and no bytes to write."""

    def __len__(self) -> int:
        return 1


def test_a_damaged_table_is_corrupt(backend, place: Path, noise) -> None:
    writer = PackWriter(backend, NONCE)
    for i in range(3):
        writer.add(chunk_id(noise(50, i)), RAW, noise(50, i), 50)
    (name,) = writer.finish()
    path = place / "packs" / f"{name.hex()}.pack"
    good = path.read_bytes()
    for at in range(len(good) - 64 * 4, len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        with pytest.raises(Corrupt) as caught:
            read_table(LocalBackend(place), name, len(good))
        assert name.hex() in (caught.value.where or "")
    for size in (0, 64, 127, len(good) - 1):
        path.write_bytes(good[:size])
        with pytest.raises(Corrupt):
            read_table(LocalBackend(place), name, size)


def test_a_newer_pack_is_unsupported() -> None:
    head = packs.pack_head(b"n" * 16)
    check_head(head, b"n" * 16)
    with pytest.raises(Corrupt):
        check_head(head, b"m" * 16)
    newer = head[:16] + struct.pack("<I", 2) + head[20:48]
    newer += blake3(newer).digest()[:16]
    with pytest.raises(Unsupported):
        check_head(newer, b"n" * 16)
