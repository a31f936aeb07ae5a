"""The committed store of format 1: every later version must read it, byte for byte."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.store.maker import DATA, load_maker

from holdfast.model import moment
from holdfast.model.errors import Denied
from holdfast.store import Store, open_store
from holdfast.store.keys import Key, Keyring

EXPECTED = json.loads((DATA / "store-v1" / "expected.json").read_text())


MAKER = load_maker()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy as version control gives it back: without empty directories."""
    return Path(shutil.copytree(DATA / "store-v1" / "store", tmp_path / "store"))


@pytest.fixture
def old(copied: Path) -> Store:
    key = Key.from_text((DATA / "store-v1" / "key").read_text())
    return open_store(copied, create=False, keyring=Keyring(key))


def test_it_has_everything_that_the_format_has(copied: Path) -> None:
    assert len(list(copied.glob("log/*.log"))) == 1
    assert len(list(copied.glob("log/*.snap"))) == 1
    packs = [path.read_bytes() for path in copied.glob("packs/*.pack")]
    codecs = set()
    for pack in packs:
        table, count = struct.unpack_from("<QQ", pack, len(pack) - 48)
        codecs |= {pack[table + 64 * i + 48] for i in range(count)}
    assert codecs == {0, 1}
    assert sum(path.stat().st_size for path in copied.rglob("*")) < 200_000


def test_it_says_what_it_said_when_it_was_made(old: Store) -> None:
    found = [
        {
            "id": one.id,
            "subject": str(one.subject),
            "parents": list(one.parents),
            "reason": one.reason,
            "stage": one.stage,
            "time": moment.to_text(one.time),
            "digest": one.digest,
            "size_bytes": one.size_bytes,
            "tags": dict(one.tags),
            "pinned": one.pinned,
            "rollback_of": one.rollback_of,
            "foreign": one.foreign,
        }
        for one in old.list()
    ]
    assert found == [{k: v for k, v in one.items() if k != "step"} for one in EXPECTED["store"]]
    heads = {str(one.subject): one.head.id for one in old.subjects() if one.head}
    assert heads == EXPECTED["heads"]
    moves = [[move.verb, move.before, move.after] for move in old.history("session/analysis")]
    assert moves == EXPECTED["moves"]
    assert old.resolve("golden").reason == "third"


def test_every_byte_comes_back(old: Store) -> None:
    assert {one["step"] for one in EXPECTED["store"]} == {0, 1, 2, 3}
    for one in EXPECTED["store"]:
        parts = MAKER.contents(one["step"])
        assert [part.name for part in old.show(one["id"]).parts] == sorted(parts)
        for name, (split, data) in parts.items():
            if split == "structure":
                assert repr(old.value(one["id"], name, trust=True)) == repr(data)
                continue
            assert old.read(one["id"], name, trust=True) == data
            with old.map(one["id"], name, verify="first", trust=True) as mapping:
                assert bytes(mapping.view) == data


def test_it_verifies_and_can_be_written_to(old: Store, copied: Path) -> None:
    report = old.verify(deep=True)
    assert report.problems == ()
    assert report.checkpoints == len(EXPECTED["store"])
    parts: dict[str, tuple[Any, Any]] = MAKER.contents(4)
    with old.draft("session/analysis", parent="golden") as draft:
        for name, (split, data) in parts.items():
            skew = MAKER.SKEW if split in ("pages", "segment") else 0
            draft.put(name, data, split, skew=skew)
        new = draft.commit()
    assert new.stored_bytes < 20_000  # most of it was there
    old.delete("golden")
    old.prune()
    for name, (split, data) in parts.items():
        assert (old.value if split == "structure" else old.read)(new, name) == data
    assert old.verify(deep=True).ok


def test_what_another_key_signed_is_foreign(old: Store, copied: Path) -> None:
    foreign = [one for one in old.list() if one.foreign]
    assert [one.reason for one in foreign] == ["made by another key"]
    with pytest.raises(Denied):
        old.read(foreign[0], "environment")
    both = Keyring(Key(MAKER.OURS), [Key(MAKER.THEIRS)])
    with open_store(copied, keyring=both) as knowing:
        assert not any(one.foreign for one in knowing.list())
