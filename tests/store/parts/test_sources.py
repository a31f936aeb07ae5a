"""Sources: everything that has bytes can be saved, and what has none is named."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.model.errors import BadInput, CaptureFailed, NotFound
from holdfast.store import Store
from holdfast.store.parts.sources import WINDOW, Growing, windows

SPLITS = ["whole", "content", "pages", "segment"]
GRID = np.arange(24, dtype=np.float64).reshape(4, 6)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"bytes", b"bytes"),
        (bytearray(b"bytearray"), b"bytearray"),
        (memoryview(b"memoryview"), b"memoryview"),
        (memoryview(b"memoryview")[3:], b"oryview"),
        (memoryview(np.arange(3, dtype="<u4")), bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])),
        (GRID, GRID.tobytes()),
        (np.asfortranarray(GRID), GRID.T.tobytes()),
        (memoryview(np.asfortranarray(GRID)), GRID.T.tobytes()),
        (GRID[1:3], GRID[1:3].tobytes()),
        (np.array(7, dtype=np.int64), (7).to_bytes(8, "little")),
        (np.empty(0), b""),
        (np.empty((0, 3)), b""),
        (np.ones(5, dtype=bool), b"\1" * 5),
        (np.ones(2, dtype=np.complex128), np.ones(2, dtype=np.complex128).tobytes()),
        (np.ones(2, dtype=">f8"), np.ones(2, dtype=">f8").tobytes()),
        (np.zeros(2, dtype="M8[ns]"), bytes(16)),
        (np.array(["ab", "c"]), np.array(["ab", "c"]).tobytes()),
        (np.zeros(2, dtype=[("a", "u1"), ("b", "<f8")]), bytes(18)),
        (np.broadcast_to(np.uint8(1), (1,)), b"\1"),
        (io.BytesIO(b"a file object"), b"a file object"),
        ([b"pieces ", bytearray(b"of "), memoryview(b"a list")], b"pieces of a list"),
        ([], b""),
        ([np.arange(2, dtype="<u2"), b"x"], b"\0\0\1\0x"),
    ],
    ids=range(23),
)
def test_every_source_is_saved_as_it_lies_in_memory(
    store: Store, save, source: Any, expected: bytes, split: Any
) -> None:
    if isinstance(source, io.BytesIO):
        source = io.BytesIO(source.getvalue())
    assert store.read(save(source, split), "part") == expected


@pytest.mark.parametrize("split", SPLITS)
def test_files_and_generators_of_many_windows(
    store: Store, save, tmp_path: Path, noise, split: Any
) -> None:
    data = noise(3 * WINDOW + 12345)
    path = tmp_path / "file"
    path.write_bytes(data)
    assert store.read(save(path, split), "part") == data
    with open(path, "rb") as file:
        file.seek(1000)
        assert store.read(save(file, split), "part") == data[1000:]
    pieces = (data[at : at + 77_777] for at in range(0, len(data), 77_777))
    assert store.read(save(pieces, split), "part") == data


@pytest.mark.parametrize("skew", [0, 16, 4095])
def test_a_skew_puts_zeros_in_front(tmp_path: Path, skew: int, noise) -> None:
    data = noise(2 * WINDOW + 5)
    path = tmp_path / "file"
    path.write_bytes(data)
    for source in (data, path, io.BytesIO(data), iter([data[:3], data[3:]])):
        assert b"".join(bytes(fetch()) for fetch in windows(source, skew)) == bytes(skew) + data


def test_files_that_the_system_makes_up_have_content(store: Store, save) -> None:
    found = store.read(save(Path("/proc/version")), "part")
    assert found == Path("/proc/version").read_bytes()
    assert found


def test_an_empty_file_is_empty(store: Store, save, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert store.read(save(tmp_path / "empty", "pages", skew=16), "part") == b""


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    "source",
    [
        "text",
        5,
        None,
        object(),
        [1, 2, 3],
        ["text"],
        {"a": 1},
        io.StringIO("text"),
        GRID[:, ::2],
        np.array([object()]),
        memoryview(b"abcdef")[::2],
        [b"fine", None],
    ],
    ids=range(12),
)
def test_what_has_no_bytes_is_refused_with_a_hint(save, source: Any, split: Any) -> None:
    with pytest.raises(BadInput) as caught:
        save(source, split)
    assert caught.value.hint or "objects" in str(caught.value)


def test_paths_that_are_not_files_are_refused(save, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no-such-file"):
        save(tmp_path / "no-such-file")
    with pytest.raises(BadInput, match="regular"):
        save(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="regular"):
        save(tmp_path / "pipe")


def test_a_file_that_shrinks_meanwhile_is_said(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * WINDOW))
    fetches = windows(path)
    assert len(next(fetches)()) == WINDOW
    os.truncate(path, WINDOW + 10)
    with pytest.raises(BadInput, match="shorter"):
        next(fetches)()


class BrokenError(Exception):
    """The source's own error."""


def breaking(data: bytes) -> Iterator[bytes]:
    yield data
    raise BrokenError


@pytest.mark.parametrize("split", SPLITS)
def test_a_source_that_fails_leaves_nothing_behind(
    store: Store, save, place: Path, noise, look, split: Any
) -> None:
    first = save(b"before")
    before = look(place)
    with pytest.raises(BrokenError):
        save(breaking(noise(5 * WINDOW)), split)
    assert look(place) == before
    assert store.list() == [first]
    assert store.verify(deep=True).ok
    assert store.read(save(noise(5 * WINDOW), split), "part") == noise(5 * WINDOW)


@pytest.mark.parametrize("skew", [0, 16])
@pytest.mark.parametrize("size", [0, 1, WINDOW - 16, WINDOW, 3 * WINDOW + 5])
def test_a_file_that_grows_is_read_to_its_end(tmp_path: Path, noise, size: int, skew: int) -> None:
    data, path, written = noise(size), tmp_path / "file", 0
    pieces = [100_000, 1, WINDOW, WINDOW]

    def grow() -> None:
        """Between two looks of whoever reads."""
        nonlocal written
        end = min(size, written + (pieces.pop() if pieces else size))
        with path.open("ab") as file:
            file.write(data[written:end])
        written = end

    path.touch()
    rests: list[int] = []
    source = Growing(path, lambda: written == size, lambda: (rests.append(written), grow()))
    assert (
        b"".join(bytes(fetch()) for fetch in windows(source, skew))
        == bytes(skew if size + skew else 0) + data
    )
    assert rests == sorted(rests)
    assert bool(rests) == bool(size)  # and without waiting, where it is complete


def test_a_file_that_stops_growing_is_no_part(store: Store, save, tmp_path: Path, noise) -> None:
    (tmp_path / "file").write_bytes(noise(2 * WINDOW))

    def never() -> bool:
        raise CaptureFailed("it was given up")

    with pytest.raises(CaptureFailed, match="given up"):
        save(Growing(tmp_path / "file", never, lambda: None), "segment")
    assert store.list() == []
