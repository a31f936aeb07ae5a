"""Shelves: what is kept there is what was put there, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store import shelf as shelves
from holdfast.store.keys import Key, Keyring
from holdfast.store.shelf import Original, Shelf

KEYS = Keyring(Key.generate())


def of(number: int, part: str = "memory", root: bytes = b"") -> Original:
    return Original("container/x", part, number.to_bytes(16, "big"), root)


def test_what_is_kept_is_found_under_its_own_name_only(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, "kind", KEYS)
    shelf.keep(of(1), b"content")
    assert shelf.has(of(1))
    assert shelf.find(of(1)) == b"content"
    for other in (of(2), of(1, "files"), of(1, root=b"r" * 32)):
        assert shelf.find(other) is None


def test_the_next_one_takes_the_place_of_the_last(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, "kind", KEYS)
    shelf.keep(of(1, "other part"), b"stays")
    for number in range(1, 4):
        shelf.keep(of(number), b"content %d" % number)
        assert shelf.latest("container/x", "memory") == b"content %d" % number
    assert len(list(tmp_path.iterdir())) == 2
    assert shelf.latest("container/x", "other part") == b"stays"
    assert shelf.latest("container/y", "memory") is None


def test_one_may_stay_beside_the_next(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, "kind", KEYS)
    shelf.keep(of(1), b"first")
    for number in (2, 3):  # each made from the first
        shelf.keep(of(number), b"other", beside=of(1).checkpoint)
    assert [shelf.find(of(number)) for number in (1, 2, 3)] == [b"first", None, b"other"]
    shelf.keep(of(4), b"last", beside=of(3).checkpoint)
    assert [shelf.has(of(number)) for number in (1, 3, 4)] == [False, True, True]
    shelf.keep(of(5), b"alone", beside=of(9).checkpoint)  # one that is not there
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "name", "folder"])
def test_what_does_not_check_is_nothing(tmp_path: Path, damage: str) -> None:
    shelf = Shelf(tmp_path, "kind", KEYS)
    shelf.keep(of(1), b"content")
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    if damage == "flip":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "name":  # a good one, of another checkpoint
        path = path.rename(tmp_path / of(2).name)
    else:
        path.unlink()
        path.mkdir()
    assert shelf.latest("container/x", "memory") is None
    assert damage == "folder" or not path.exists()


def test_what_another_kind_or_key_sealed_is_nothing(tmp_path: Path) -> None:
    for there in (Shelf(tmp_path, "kind", Keyring(Key.generate())), Shelf(tmp_path, "other", KEYS)):
        there.keep(of(1), b"content")
        assert Shelf(tmp_path, "kind", KEYS).find(of(1)) is None
        assert list(tmp_path.iterdir()) == []


def test_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "LIMIT", 1000)
    shelf = Shelf(tmp_path, "kind", KEYS)
    for number in range(5):
        shelf.keep(of(number, f"part {number}"), bytes(300))
    found = [shelf.find(of(number, f"part {number}")) is not None for number in range(5)]
    assert found == [False, False, False, True, True]


def test_without_a_key_or_a_place_there_is_none(tmp_path: Path) -> None:
    for shelf in (Shelf(tmp_path, "kind", Keyring(None)), Shelf(None, "kind", KEYS)):
        assert not shelf.is_there
        shelf.keep(of(1), b"content")
        assert shelf.find(of(1)) is None
        assert shelf.latest("container/x", "memory") is None
        shelf.sweep(())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "in the way").write_text("")
    shelf = Shelf(tmp_path / "in the way", "kind", KEYS)
    shelf.keep(of(1), b"content")
    assert shelf.latest("container/x", "memory") is None
