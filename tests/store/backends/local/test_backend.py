"""A store in a directory, and what may be wrong with the directory."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from blake3 import blake3

from holdfast.model.errors import BadInput, Corrupt, Denied, HoldfastError, Unsupported
from holdfast.store import Store, open_store
from holdfast.store.backends import marker
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.keys import load_keyring
from holdfast.store.log.frames import Signed, signed_message


def test_a_new_store_says_what_it_is(place: Path) -> None:
    open_store(place / "deep" / "below")
    data = (place / "deep" / "below" / "holdfast.json").read_bytes()
    fields = json.loads(data)
    assert (fields["format"], fields["version"]) == ("holdfast-store", 1)
    checksum = fields.pop("checksum")
    plain = json.dumps(fields, sort_keys=True, separators=(",", ":")) + "\n"
    assert blake3(plain.encode()).hexdigest()[:32] == checksum


def test_many_may_make_the_same_store_at_once(place: Path) -> None:
    start = threading.Barrier(6)
    ids = []

    def make() -> None:
        start.wait()
        ids.append(LocalBackend(place).store_id)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 6
    assert len(set(ids)) == 1
    assert not list((place / "tmp").iterdir())


def test_a_directory_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(Denied, match=r"not a store.*thesis\.txt") as caught:
        open_store(tmp_path)
    assert caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="is a file") as caught:
        open_store(tmp_path / "file")
    assert caught.value.hint
    with pytest.raises(HoldfastError):
        open_store(tmp_path / "file" / "below")


def test_empty_directories_that_a_backup_forgot_are_made_again(place: Path, save, store) -> None:
    made = save()
    store.close()
    for name in ("packs", "holds", "tmp"):
        (place / name).rmdir()
    with open_store(place, create=False) as again:
        assert again.read(made, "part") == b"content"
        assert save(b"more", into=again).parents == (made.id,)


def test_a_newer_format_is_refused(place: Path, store: Store) -> None:
    marker = place / "holdfast.json"
    fields = json.loads(marker.read_text())
    del fields["checksum"]
    fields["version"] = 2
    plain = json.dumps(fields, sort_keys=True, separators=(",", ":")) + "\n"
    fields["checksum"] = blake3(plain.encode()).hexdigest()[:32]
    marker.write_text(json.dumps(fields, sort_keys=True, separators=(",", ":")) + "\n")
    with pytest.raises(Unsupported, match="format 2") as caught:
        open_store(place)
    assert "upgrade" in (caught.value.hint or "").lower()


def test_an_unknown_kind_of_entry_is_refused(place: Path, store: Store, save) -> None:
    save()
    header = b"\x92\xa6dilate\x01"  # ["dilate", 1]
    key_id, mac = load_keyring().sign(signed_message(2, header))
    backend = LocalBackend(place)
    backend.entries(0)
    backend.append(Signed(seq=2, key_id=key_id, mac=mac, header=header))
    with pytest.raises(Unsupported, match="dilate") as caught:
        open_store(place)
    assert "upgrade" in (caught.value.hint or "").lower()
    with pytest.raises(Unsupported):
        store.list()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "5", '{"version":1}', '{"id":"x","version":"one"}', '{"id":1,"version":1e999}'],
)
def test_a_damaged_marker_is_named(place: Path, store: Store, text: str) -> None:
    (place / "holdfast.json").write_text(text)
    with pytest.raises(Corrupt, match=r"holdfast\.json"):
        open_store(place)


def test_a_missing_pack_is_named_and_spares_the_others(store: Store, save, place, noise) -> None:
    lost, small = save(noise(2_000_000)), save(b"small", subject="state/y")
    (pack,) = place.glob("packs/*.pack")
    pack.unlink()
    with open_store(place) as again:
        with pytest.raises(Corrupt, match="missing") as caught:
            again.read(lost, "part")
        assert caught.value.hint
        assert again.read(small, "part") == b"small"
        (problem,) = again.verify().problems
        assert (pack.stem in problem.what, problem.affects) == (True, (lost.id,))
        again.delete(lost)
        again.prune()
        assert again.verify(deep=True).ok


def test_a_store_cannot_name_a_folder_of_this_machine(tmp_path: Path) -> None:
    """Its id becomes the name of a folder in HOLDFAST_HOME, and a store may come from anybody."""
    place = tmp_path / "store"
    open_store(place).close()
    fields = json.loads((place / marker.NAME).read_bytes())
    del fields["checksum"]
    (place / marker.NAME).write_bytes(marker._encode(fields | {"id": "../../elsewhere"}))
    with pytest.raises(Corrupt, match="id"):
        open_store(place)
