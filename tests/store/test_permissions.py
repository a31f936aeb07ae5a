"""Stores that may be read and not written, or neither: said clearly, and nothing is harmed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Denied, HoldfastError
from holdfast.store import Store, open_store
from holdfast.store.keys import Key, Keyring

RING = Keyring(Key(bytes(32)))
# What is imported lazily must be there before the permission to read it is given away.
AS_NOBODY = """
import os, sys
import numpy
from holdfast.model.errors import HoldfastError
from holdfast.store import open_store
from holdfast.store.keys import Key, Keyring
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
try:
    store = open_store(sys.argv[1], keyring=Keyring(Key(bytes(32))))
    if sys.argv[2] == "read":
        print(store.read("state/x", "part")[:4], len(store.list()), store.verify(deep=True).ok)
    elif sys.argv[2] == "write":
        with store.draft("state/x") as draft:
            draft.put("part", b"x")
            draft.commit()
    else:
        store.prune()
except HoldfastError as error:
    print(error.kind, "|", error, "|", error.hint)
"""


def as_nobody(place: Path, verb: str) -> str:
    """What an unprivileged user gets to see."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(place), verb],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def place() -> Iterator[Path]:
    """Below a directory that everybody may enter, which pytest's own is not."""
    assert os.getuid() == 0, "these tests give permissions away, so they need root to begin with"
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder) / "store"


@pytest.fixture
def written(place: Path, noise) -> Checkpoint:
    """A store whose owner lets everybody read it."""
    with open_store(place, keyring=RING) as store, store.draft("state/x") as draft:
        draft.put("part", noise(1_500_000))
        made = draft.commit()
    subprocess.run(["chmod", "-R", "a+rX", place], check=True)
    return made


def test_somebody_else_may_read_and_not_write(place: Path, written: Checkpoint, look) -> None:
    before = look(place)
    assert as_nobody(place, "read").endswith(" 1 True\n")
    for verb in ("write", "prune"):
        kind, text, hint = as_nobody(place, verb).strip().split(" | ")
        assert kind == "denied"
        assert "denied" in text.lower()
        assert hint != "None"
    assert look(place) == before


@pytest.mark.parametrize("verb", ["read", "write"])
def test_a_store_that_may_not_be_entered(place: Path, written: Checkpoint, verb: str) -> None:
    place.chmod(0o700)
    kind, text, hint = as_nobody(place, verb).strip().split(" | ")
    assert kind == "denied"
    assert "opening the store" in text
    assert "owns" in hint


def test_a_pack_that_may_not_be_read(place: Path, written: Checkpoint) -> None:
    for pack in place.glob("packs/*.pack"):
        pack.chmod(0o600)
    assert as_nobody(place, "read").startswith("denied | ")


def test_a_store_cannot_be_made_where_one_may_not_write(place: Path) -> None:
    kind, text, hint = as_nobody(place, "write").strip().split(" | ")
    assert kind == "denied"
    assert "making a store" in text
    assert hint != "None"
    assert not place.exists()


@pytest.fixture
def read_only(tmp_path: Path, noise) -> Iterator[tuple[Store, Checkpoint]]:
    """A store on a file system that is mounted read-only after something was written."""
    mount = tmp_path / "mount"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(mount)], check=True)
    try:
        with open_store(mount / "store", keyring=RING) as store, store.draft("state/x") as draft:
            draft.put("part", noise(2_000_000), "segment")
            made = draft.commit()
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
        with open_store(mount / "store", keyring=RING) as store:
            yield store, made
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_read_only_store_can_be_read(read_only: tuple[Store, Checkpoint], noise) -> None:
    store, made = read_only
    assert store.list() == [made]
    assert store.read(made, "part") == noise(2_000_000)
    with store.open(made, "part") as stream:
        assert stream.read(10) == noise(2_000_000)[:10]
    with store.map(made, "part", verify="first") as mapping:
        assert bytes(mapping.view) == noise(2_000_000)
    assert store.verify(deep=True).ok
    assert store.diff(made, made).same
    assert store.prune(dry_run=True).removed == ()


def test_a_read_only_store_says_that_it_is(read_only: tuple[Store, Checkpoint]) -> None:
    store, made = read_only
    for write in (
        lambda: store.draft("state/x"),
        lambda: store.tag(made, "name"),
        lambda: store.pin(made),
        lambda: store.restore(made),
        lambda: store.rollback("state/x", made),
        lambda: store.fork(made, "y"),
        lambda: store.delete(made),
        lambda: store.undo("state/x"),
        lambda: store.prune(),
    ):
        with pytest.raises(Denied, match="Read-only") as caught:
            write()
        assert "read-only" in (caught.value.hint or "")
    assert store.list() == [made]


def test_a_store_cannot_be_made_on_a_read_only_file_system(
    read_only: tuple[Store, Checkpoint],
) -> None:
    store, _ = read_only
    with pytest.raises(HoldfastError) as caught:
        open_store(Path(store.url).parent / "another", keyring=RING)
    assert caught.value.kind == "denied"
