"""Copies of heads: read at once by the next process, never trusted, never outliving anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import Corrupt, Denied
from holdfast.model.home import home
from holdfast.store import Store, open_store
from holdfast.store.copies import Copies
from holdfast.store.keys import Key, Keyring, load_keyring
from holdfast.store.retention import Last
from holdfast.store.shelf import Original


@pytest.fixture(params=["plain", "encrypted"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def value(step: int = 0) -> dict[str, Any]:
    return {"step": step, "rows": [{"id": n, "text": f"plainly {n} " * 20} for n in range(500)]}


def copies() -> list[Path]:
    return sorted(path for path in home().glob("copies/*/*") if path.is_file())


def put(store: Store, what: Any, subject: str = "state/x") -> Any:
    with store.draft(subject) as draft:
        draft.put("state", what, split="structure")
        return draft.commit()


def read(place: Path, subject: str = "state/x") -> Any:
    with open_store(place) as store:
        return store.value(subject, "state")


def test_the_next_process_reads_what_the_last_one_wrote(place: Path) -> None:
    with open_store(place) as store:
        put(store, value())
    (copy,) = copies()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.parent.stat().st_mode & 0o777 == 0o700
    assert read(place) == value()
    program = (
        "import sys; from holdfast.store import open_store;"
        " print(len(open_store(sys.argv[1]).value('state/x', 'state')['rows']))"
    )
    command = [sys.executable, "-c", program, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "500"


def test_a_copy_is_what_is_read(tmp_path: Path) -> None:
    """Of a large state the log has only the entry; what it refers to may be out of reach."""
    place = tmp_path / "store"
    large = {f"key {n}": os.urandom(5000).hex() for n in range(400)}
    with open_store(place) as store:
        put(store, large)
    packs = list(place.glob("packs/*"))
    assert packs
    for pack in packs:
        pack.unlink()
    assert read(place) == large
    copies()[0].unlink()
    with pytest.raises(Corrupt):
        read(place)


def test_one_that_is_missing_is_made_by_whoever_reads(place: Path) -> None:
    store = open_store(place)
    put(store, value())
    assert copies() == []  # as after a kill: nobody closed it
    assert read(place) == value()
    assert len(copies()) == 1
    put(store, value(1))
    assert read(place) == value(1)
    assert len(copies()) == 1  # in the place of the other
    store.close()


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other", "folder"])
def test_one_that_is_damaged_is_not_read(place: Path, damage: str) -> None:
    with open_store(place) as store:
        put(store, value())
        put(store, value(7), "state/y")
    of = {path: path.read_bytes() for path in copies()}
    for path, data in of.items():
        if damage == "flip":
            path.write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
        elif damage == "cut":
            path.write_bytes(data[:-9])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "other":  # a good copy of something else
            path.write_bytes(next(each for each in of.values() if each != data))
        else:
            path.unlink()
            path.mkdir()
    assert read(place) == value()
    assert read(place, "state/y") == value(7)


def test_one_that_somebody_else_made_is_not_parsed(tmp_path: Path) -> None:
    original = Original("state/x", "state", b"c" * 16, b"r" * 32)
    theirs = Copies(tmp_path, Keyring(Key.generate()))
    theirs.keep(original, value())
    ours = Copies(tmp_path, Keyring(Key.generate()))
    assert ours.find(original) is None
    assert list(tmp_path.iterdir()) == []
    nobodys = Copies(tmp_path, Keyring(None))
    nobodys.keep(original, value())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", ["delete", "prune", "elsewhere", "another user"])
def test_none_outlives_its_checkpoint(
    place: Path, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(place) as store:
        old = put(store, value())
        put(store, value(9), "state/kept")
    assert len(copies()) == 2
    kept = copies()
    with open_store(place) as store:
        if way == "prune":
            put(store, {"small": 1})
            store.prune(Last(1))
        elif way == "delete":
            store.delete(old)
        elif way == "elsewhere":
            with open_store(place) as other:
                other.delete(old)
            store.refresh()
        else:
            with monkeypatch.context() as patch:
                patch.setenv("HOLDFAST_KEY", load_keyring().signing.to_text())  # type: ignore[union-attr]
                patch.setenv("HOLDFAST_HOME", str(tmp_path / "theirs"))
                with open_store(place) as other:
                    other.delete(old)
    with open_store(place):
        assert len(copies()) == 1
    assert copies()[0] in kept
    assert old.id.replace("-", "") not in copies()[0].name


def test_an_encrypted_store_has_encrypted_copies(tmp_path: Path) -> None:
    place = tmp_path / "store"
    with open_store(place, encrypt=True, passphrase="open") as store:
        put(store, value())
    (copy,) = copies()
    assert b"plainly" not in copy.read_bytes()
    with open_store(place, passphrase="open") as store:
        assert store.value("state/x", "state") == value()


def test_what_needs_none_has_none(place: Path) -> None:
    with open_store(place) as store:
        put(store, {"small": "x" * 1000})
        put(store, {"big": 2**100, "pad": "x" * 100_000}, "state/big")
        first = put(store, value(), "state/old")
        put(store, {"small": 2}, "state/old")
        assert store.value(first, "state") == value()
    assert copies() == []
    assert read(place, "state/big")["big"] == 2**100
    memory = open_store("memory://")
    put(memory, value())
    memory.close()
    assert copies() == []


def test_a_home_that_cannot_be_written_is_done_without(place: Path) -> None:
    with open_store(place) as store:
        put(store, value())
        (home() / "copies").write_text("in the way")
    assert read(place) == value()


def test_trust_is_asked_for_before_a_copy(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(place) as store:
        put(store, value())
    assert len(copies()) == 1
    monkeypatch.setenv("HOLDFAST_KEY", Key.generate().to_text())
    with open_store(place) as store:
        with pytest.raises(Denied):
            store.value("state/x", "state")
        assert store.value("state/x", "state", trust=True) == value()
