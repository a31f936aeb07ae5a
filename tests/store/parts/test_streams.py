"""Streams: a part as a file."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import NotFound, UsageError
from holdfast.store import Store, open_store
from holdfast.store.backends.local.holds import living

SPLITS = ["whole", "content", "pages", "segment"]
SIZE = 700_001

moves = st.lists(
    st.one_of(
        st.tuples(st.just("seek"), st.integers(0, SIZE + 100), st.just(io.SEEK_SET)),
        st.tuples(st.just("seek"), st.integers(-SIZE, 0), st.just(io.SEEK_END)),
        st.tuples(st.just("read"), st.integers(0, 300_000), st.just(0)),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def written() -> Any:
    random = np.random.default_rng(3)
    data = bytearray(random.bytes(SIZE))
    data[200_000:600_000] = bytes(400_000)
    store = open_store("memory://")
    with store.draft("session/x") as draft:
        for split in SPLITS:
            draft.put(split, data, split, skew=16 if split in ("pages", "segment") else 0)
        return store, draft.commit(), bytes(data)


@given(moves=moves, split=st.sampled_from(SPLITS))
@settings(max_examples=60)
def test_a_part_behaves_like_a_file(written: Any, moves: list[Any], split: str) -> None:
    store, checkpoint, data = written
    expected = io.BytesIO(data)
    with store.open(checkpoint, split) as stream:
        for verb, number, whence in moves:
            if verb == "seek":
                assert stream.seek(number, whence) == expected.seek(number, whence)
            else:
                assert stream.read(number) == expected.read(number)
            assert stream.tell() == expected.tell()
        assert stream.read() == expected.read()


@pytest.mark.parametrize("split", SPLITS)
def test_a_part_is_copied_to_a_file_with_holes(written: Any, tmp_path: Path, split: str) -> None:
    store, checkpoint, data = written
    path = tmp_path / "copy"
    path.write_bytes(b"longer than the part, and different" * 100_000)
    fd = os.open(path, os.O_RDWR | os.O_TRUNC)
    try:
        assert store.copy_part(checkpoint, split, fd) == len(data)
    finally:
        os.close(fd)
    assert path.read_bytes() == data
    if split in ("pages", "segment"):
        assert path.stat().st_blocks * 512 < len(data)


def test_a_stream_is_read_only_and_closes(store: Store, save, place: Path) -> None:
    checkpoint = save(b"some bytes")
    stream = store.open(checkpoint, "part")
    assert (stream.readable(), stream.seekable(), stream.writable()) == (True, True, False)
    assert living(place / "holds")
    stream.close()
    assert living(place / "holds") == []
    with pytest.raises(ValueError, match="closed"):
        stream.read(1)


def test_an_open_stream_survives_delete_and_prune(store: Store, save, noise) -> None:
    data = noise(3_000_000)
    checkpoint = save(data)
    with store.open(checkpoint, "part") as stream:
        beginning = stream.read(1000)
        store.delete(checkpoint)
        report = store.prune()
        assert report.pending_bytes > len(data)
        assert beginning + stream.read() == data
    assert store.prune().reclaimed_bytes > len(data)


def test_asking_for_what_is_not_there(store: Store, save) -> None:
    checkpoint = save(b"x", part="a")
    for reads in (store.open, store.read, store.value, store.map):
        with pytest.raises(NotFound) as caught:
            reads(checkpoint, "b")
        assert "a" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="bytes"):
        store.value(checkpoint, "a")
    with pytest.raises(NotFound):
        store.read("state/none", "a")


def test_seeking_before_the_beginning_raises(store: Store, save) -> None:
    made = save(b"some content")
    with store.open(made, "part") as stream:
        stream.seek(5)
        for offset, whence in ((-1, io.SEEK_SET), (-6, io.SEEK_CUR), (-13, io.SEEK_END)):
            with pytest.raises(OSError, match="before the beginning"):
                stream.seek(offset, whence)
            assert stream.tell() == 5
        with pytest.raises(ValueError, match="whence"):
            stream.seek(0, 9)
        assert stream.seek(-5, io.SEEK_CUR) == 0
        assert stream.seek(99) == 99
        assert stream.read() == b""


def test_a_part_that_is_no_archive_is_refused(store: Store, save) -> None:
    """`zipfile` looks for the end of an archive by seeking to before the beginning."""
    made = save(b"short")
    with store.open(made, "part") as stream:
        assert not zipfile.is_zipfile(stream)
