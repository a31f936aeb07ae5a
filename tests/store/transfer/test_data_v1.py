"""The committed archive and encrypted store of format 1: every later version must read them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.store.maker import DATA, load_maker

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Denied
from holdfast.store import Store, open_store
from holdfast.store.keys import Key, Keyring

EXPECTED = {
    one["id"]: one for one in json.loads((DATA / "store-v1" / "expected.json").read_text())["store"]
}
KEYRING = Keyring(Key.from_text((DATA / "store-v1" / "key").read_text()))
PASSPHRASE = "nothing secret is behind this"


MAKER = load_maker()


def check(store: Store, checkpoint: Checkpoint) -> None:
    """A checkpoint is what it was when it was made, byte for byte."""
    wanted: dict[str, Any] = EXPECTED[checkpoint.id]
    for field in ("reason", "stage", "digest", "size_bytes", "tags", "pinned", "rollback_of"):
        assert getattr(checkpoint, field) == wanted[field]
    assert moment.to_text(checkpoint.time) == wanted["time"]
    assert (str(checkpoint.subject), list(checkpoint.parents)) == (
        (wanted["subject"], wanted["parents"])
    )
    assert checkpoint.foreign == wanted["foreign"]
    for name, (split, data) in MAKER.contents(wanted["step"]).items():
        if split == "structure":
            assert store.value(checkpoint, name, trust=True) == data
        else:
            assert store.read(checkpoint, name, trust=True) == data


def test_the_archive(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", keyring=KEYRING) as store:
        report = store.import_archive(DATA / "transfer-v1" / "archive.holdfast")
        assert len(report.imported) == 4
        for one in report.imported:
            check(store, one)
        assert store.verify(deep=True).ok


@pytest.mark.parametrize(
    "secret",
    [{"passphrase": PASSPHRASE}, {"key_file": DATA / "transfer-v1" / "encryption.key"}],
    ids=["passphrase", "key file"],
)
def test_the_encrypted_store(tmp_path: Path, secret: dict[str, Any]) -> None:
    place = Path(shutil.copytree(DATA / "transfer-v1" / "encrypted", tmp_path / "store"))
    assert len(list(place.glob("packs/*.pack"))) == len(list(place.glob("log/*.snap"))) == 1
    with pytest.raises(Denied):
        open_store(place, keyring=KEYRING)
    with open_store(place, keyring=KEYRING, **secret) as store:
        assert {one.id for one in store.list()} == EXPECTED.keys()
        for one in store.list():
            check(store, one)
        assert store.verify(deep=True).ok
        with store.draft("state/new") as draft:
            draft.put("part", b"more")
            draft.commit()
