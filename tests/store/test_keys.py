"""Keys: who signed a checkpoint, and what may be done without knowing them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from blake3 import blake3

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, Conflict, Denied, NotFound
from holdfast.store import Store, open_store
from holdfast.store.keys import Key, Keyring, import_key, load_keyring

OURS, THEIRS = Key(b"\1" * 32), Key(b"\2" * 32)


@pytest.fixture
def ours(place: Path) -> Store:
    return open_store(place, keyring=Keyring(OURS))


@pytest.fixture
def foreign(ours: Store, place: Path) -> Checkpoint:
    """A checkpoint that somebody with another key put into our store."""
    with (
        open_store(place, keyring=Keyring(THEIRS)) as theirs,
        theirs.draft("state/x", reason="theirs") as draft,
    ):
        draft.put("part", b"who knows what", "pages")
        draft.put("value", {"a": 1}, "structure")
        return draft.commit()


def test_a_foreign_checkpoint_is_listed_as_such(ours: Store, foreign: Checkpoint) -> None:
    (found,) = ours.list()
    assert (found.id, found.foreign, found.signer) == (foreign.id, True, THEIRS.id.hex())
    assert ours.head("state/x") == found
    assert [part.name for part in ours.show(found).parts] == ["part", "value"]
    assert ours.verify(deep=True).ok
    ours.tag(found, "seen")
    ours.pin(found)


def test_its_content_is_only_for_those_who_trust_it(ours: Store, foreign: Checkpoint) -> None:
    for call in (
        lambda **trust: ours.open(foreign, "part", **trust).close(),
        lambda **trust: ours.read(foreign, "part", **trust),
        lambda **trust: ours.value(foreign, "value", **trust),
        lambda **trust: ours.map(foreign, "part", **trust).close(),
        lambda **trust: ours.restore(foreign, **trust),
        lambda **trust: ours.diff(foreign, foreign, **trust),
        lambda **trust: ours.rollback("state/x", foreign, **trust),
        lambda **trust: ours.fork(foreign, "mine", **trust),
    ):
        with pytest.raises(Denied, match="not known here") as caught:
            call()
        assert "key import" in (caught.value.hint or "")
        call(trust=True)


def test_what_is_made_of_it_is_ours_and_was_asked_for(ours: Store, foreign: Checkpoint) -> None:
    with pytest.raises(Denied):
        ours.fork(foreign, "mine")
    fork = ours.fork(foreign, "mine", trust=True)
    assert not fork.foreign
    assert ours.read(fork, "part") == b"who knows what"
    assert ours.resolve(foreign).foreign  # provenance is permanent


def test_a_part_of_a_foreign_parent_cannot_be_kept(ours: Store, foreign: Checkpoint) -> None:
    with ours.draft("state/x") as draft:
        with pytest.raises(Denied, match="kept"):
            draft.keep("part")
        draft.put("part", b"our own", "pages")
        mine = draft.commit()
    assert not mine.foreign
    assert ours.read(mine, "part") == b"our own"


def test_a_foreign_key_that_is_imported_is_known(
    place: Path, ours: Store, foreign: Checkpoint, holdfast_home: Path
) -> None:
    with open_store(place) as before:
        assert before.resolve(foreign).foreign
    path = import_key(THEIRS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(Conflict, match="before"):
        import_key(THEIRS)
    with open_store(place) as knowing:
        assert not knowing.resolve(foreign).foreign
        assert knowing.read(foreign, "part") == b"who knows what"
        with knowing.draft("state/x") as draft:
            assert draft.commit().signer != THEIRS.id.hex()  # known, and not signed with


def rewrite(place: Path, old: bytes, new: bytes) -> None:
    """Change bytes of an entry as somebody would who can compute checksums and has no key."""
    (log,) = place.glob("log/*.log")
    data = bytearray(log.read_bytes())
    at = data.index(old)
    data[at : at + len(old)] = new
    start = data.rindex(bytes.fromhex(log.stem.partition("-")[2]), 0, at)
    while data[start - 16 : start] == data[start : start + 16]:
        start -= 16  # marker and origin are the same name
    header, body = (int.from_bytes(data[start + 32 + i : start + 36 + i], "little") for i in (0, 4))
    size = 104 + header + body
    end = start + size + -size % 8
    digest = blake3(data[start : start + 88] + data[start + 104 : end]).digest()
    data[start + 88 : start + 104] = digest[:16]
    log.write_bytes(data)


def test_a_tampered_entry_is_named_and_never_becomes_a_checkpoint(ours: Store, place: Path) -> None:
    for reason in ("innocent", "harmless"):
        with ours.draft("state/x", reason=reason) as draft:
            draft.put("part", b"content")
            draft.commit()
    rewrite(place, b"innocent", b"forged!!")
    with open_store(place, keyring=Keyring(OURS)) as again:
        assert [one.reason for one in again.list()] == ["harmless"]
        problems = again.verify().problems
        assert any("entry 1" in p.where and "signature" in p.what for p in problems)
    with open_store(place, keyring=Keyring(THEIRS)) as stranger:  # cannot tell, and so asks
        assert [one.foreign for one in stranger.list()] == [True, True]
        with pytest.raises(Denied):
            stranger.read("state/x~1", "part")
        assert not stranger.verify(deep=True).ok  # its digest is wrong


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(b"kommit", id="a type that there is not"),
        pytest.param(b"\xc1\xc1\xc1\xc1\xc1\xc1", id="no message at all"),
    ],
)
def test_a_signature_is_checked_before_anything_is_parsed(
    ours: Store, place: Path, forged: bytes
) -> None:
    """Whoever parsed it first would speak of what cannot be read, or of a newer version."""
    for reason in ("first", "second"):
        with ours.draft("state/x", reason=reason) as draft:
            draft.commit()
    rewrite(place, b"commit", forged)
    with open_store(place, keyring=Keyring(OURS)) as again:
        assert [one.reason for one in again.list()] == ["second"]
        (problem,) = again.verify().problems
        assert (problem.where, problem.what) == ("log entry 1", "its signature is wrong")


def test_somebody_elses_key_id_makes_an_entry_foreign(ours: Store, place: Path) -> None:
    with ours.draft("state/x") as draft:
        draft.commit()
    rewrite(place, OURS.id, THEIRS.id)
    with open_store(place, keyring=Keyring(OURS)) as again:
        assert [one.foreign for one in again.list()] == [True]
    with open_store(place, keyring=Keyring(OURS, [THEIRS])) as again:
        assert again.list() == []
        assert not again.verify().ok


def test_without_a_key_everything_is_foreign(place: Path) -> None:
    with open_store(place, keyring=Keyring(None)) as store, store.draft("state/x") as draft:
        draft.put("part", b"unsigned")
        checkpoint = draft.commit()
        assert checkpoint.foreign
        with pytest.raises(Denied):
            store.read(checkpoint, "part")


def test_a_key_is_made_on_first_use(holdfast_home: Path) -> None:
    first, second = load_keyring(), load_keyring()
    path = holdfast_home / "key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first.signing == second.signing == Key.from_text(path.read_text())
    assert [p.name for p in holdfast_home.iterdir()] == ["key"]


def test_whoever_only_looks_makes_no_key(holdfast_home: Path) -> None:
    assert load_keyring(make=False).signing is None
    assert list(holdfast_home.iterdir()) == []
    assert load_keyring().signing == load_keyring(make=False).signing
    (holdfast_home / "key").write_text("not a key")
    with pytest.raises(BadInput, match="not a key file"):
        load_keyring(make=False)


def test_keys_come_from_the_environment(tmp_path: Path, holdfast_home: Path) -> None:
    (tmp_path / "shared").write_text(THEIRS.to_text() + "\n")
    home = {"HOLDFAST_HOME": str(holdfast_home)}
    by_file = load_keyring({**home, "HOLDFAST_KEY_FILE": str(tmp_path / "shared")})
    by_value = load_keyring({**home, "HOLDFAST_KEY": OURS.to_text()})
    both = {"HOLDFAST_KEY": OURS.to_text(), "HOLDFAST_KEY_FILE": str(tmp_path / "shared")}
    assert by_file.signing == THEIRS
    assert by_value.signing == load_keyring({**home, **both}).signing == OURS
    assert not (holdfast_home / "key").exists()


@pytest.mark.parametrize("text", ["", "abc", "0" * 63, "0" * 66, "g" * 64, "é" * 64])
def test_what_is_not_a_key_is_refused(tmp_path: Path, text: str, holdfast_home: Path) -> None:
    path = tmp_path / "not-a-key"
    path.write_text(text)
    with pytest.raises(BadInput, match="not-a-key") as caught:
        load_keyring({"HOLDFAST_KEY_FILE": str(path)})
    assert caught.value.hint
    if text:
        with pytest.raises(BadInput):
            load_keyring({"HOLDFAST_KEY": text})
    (holdfast_home / "keys").mkdir()
    (holdfast_home / "keys" / "bad.key").write_text(text)
    with pytest.raises(BadInput, match=r"bad\.key"):
        load_keyring()


def test_a_key_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no-key"):
        load_keyring({"HOLDFAST_KEY_FILE": str(tmp_path / "no-key")})
    with pytest.raises(BadInput):
        Key(b"short")


def test_a_key_does_not_show_its_secret() -> None:
    assert OURS.to_text() not in repr(OURS)
    assert OURS.id != THEIRS.id
    assert OURS.id.hex() not in OURS.to_text()


def test_a_mac_is_right_for_one_key_and_one_message() -> None:
    ring = Keyring(OURS, [THEIRS])
    key_id, mac = ring.sign(b"message")
    assert ring.accepts(key_id, mac, b"message")
    assert not ring.accepts(key_id, mac, b"massage")
    assert not ring.accepts(THEIRS.id, mac, b"message")
    assert not ring.accepts(bytes(8), bytes(32), b"message")
    assert not Keyring(THEIRS).accepts(key_id, mac, b"message")
