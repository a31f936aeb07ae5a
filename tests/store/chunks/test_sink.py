"""The sink: small drafts stay in memory and go into the log, larger ones into packs."""

from __future__ import annotations

from pathlib import Path

from holdfast.store import Store
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import chunk_id
from holdfast.store.chunks.library import Library
from holdfast.store.chunks.sink import SMALL_COMMIT, Sink


def sink_of(place: Path) -> tuple[Sink, Library]:
    backend = LocalBackend(place)
    library = Library(backend)
    return Sink(backend, library.index, lambda _: True, b"nonce678"), library


def test_small_drafts_stay_in_memory(place: Path, noise) -> None:
    sink, _ = sink_of(place)
    ids = [sink.put(noise(1000, i)) for i in range(20)]
    assert ids == [chunk_id(noise(1000, i)) for i in range(20)]
    assert [sink.volume(one) for one in ids] == [None] * 20
    assert [one.stored for one in sink.inline] == [noise(1000, i) for i in range(20)]
    assert sink.body == b"".join(noise(1000, i) for i in range(20))
    assert sink.stored_bytes == 20_000
    sink.finish()
    assert not list(place.glob("packs/*"))


def test_what_waits_is_as_it_was_given(place: Path, noise) -> None:
    first, _ = sink_of(place)
    given = bytearray(noise(1000, 1))
    first.put(given)
    given[:] = bytes(1000)
    other, _ = sink_of(place)
    other.put(noise(1000, 2))
    assert first.body == noise(1000, 1)
    first.discard()
    again, _ = sink_of(place)
    again.put(noise(500, 3))
    assert other.body == noise(1000, 2)
    assert again.body == noise(500, 3)
    assert first.body == b""
    first.discard()  # once more
    last, _ = sink_of(place)
    last.put(noise(500, 4))
    assert again.body == noise(500, 3)


def test_larger_drafts_spill_into_packs(place: Path, noise) -> None:
    sink, library = sink_of(place)
    plains = [noise(100_000, i) for i in range(30)]
    ids = list(workers.compute().map(sink.put, plains))
    assert sink.stored_bytes > SMALL_COMMIT
    sink.finish()
    assert sink.inline == []
    assert len({sink.volume(one) for one in ids}) == 1
    library.learn_everything()
    for one, plain in zip(ids, plains, strict=True):
        assert library.get(one) == plain


def test_the_same_bytes_are_stored_once(place: Path, noise) -> None:
    sink, library = sink_of(place)
    list(workers.compute().map(sink.put, [noise(50_000)] * 40))
    assert sink.stored_bytes == 50_000
    sink.put(noise(1_500_000, 1))
    sink.finish()
    again, library = sink_of(place)
    library.learn_everything()
    assert again.put(noise(50_000)) == chunk_id(noise(50_000))
    assert again.stored_bytes == 0
    assert again.volume(chunk_id(noise(50_000))) == sink.volume(chunk_id(noise(50_000)))


def test_a_mapped_chunk_needs_a_copy_that_can_be_mapped(place: Path, noise) -> None:
    sink, _ = sink_of(place)
    sink.put(noise(5000))
    sink.put(noise(2_000_000, 1))
    sink.finish()
    again, library = sink_of(place)
    library.learn_everything()
    again.put(noise(5000), aligned=True)
    assert again.stored_bytes == 5000


def test_a_small_commit_makes_no_pack_and_a_large_one_does(
    store: Store, save, place, noise
) -> None:
    save(noise(900_000))
    assert not list(place.glob("packs/*"))
    save(noise(1_200_000, 1))
    assert len(list(place.glob("packs/*"))) == 1
