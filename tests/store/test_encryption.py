"""Encrypted stores: nothing readable on disk, nothing alterable, nothing in plaintext taken."""

from __future__ import annotations

import io
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, Conflict, Corrupt, Denied, UsageError
from holdfast.store import Store, open_store
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.chunks.chunk import chunk_id
from holdfast.store.cipher import AesCipher
from holdfast.store.keys import load_keyring
from holdfast.store.retention import Last
from holdfast.store.slots import Secret, new_key_file

Save = Callable[..., Checkpoint]
Look = Callable[[Path], dict[str, bytes]]

WORDS = ("quetzal", "xylophone", "zeppelin", "kumquat", "yggdrasil", "flibbertigibbet")


@pytest.fixture
def kind() -> str:
    return "encrypted"


def fill(store: Store) -> Checkpoint:
    """Known words in every place a word can be, in small checkpoints and in large ones."""
    subject, stage, reason, tag, value, part = WORDS
    checkpoint = None
    for size in (1, 40_000):
        for split in ("whole", "content", "pages", "segment"):
            with store.draft(
                f"state/{subject}", reason=reason, stage=stage, tags={tag: tag}
            ) as draft:
                draft.put(part, f"{value} {size} ".encode() * size, split=split)  # type: ignore[arg-type]
                draft.put(f"{part}-tree", {value: [value] * size}, split="structure")
                checkpoint = draft.commit()
    assert checkpoint is not None
    store.tag(checkpoint, tag, value)
    store.fork(checkpoint, f"{subject}-fork")
    store.rollback(f"state/{subject}")
    with store.lease(f"state/{subject}", owner=value, url=f"http://{value}"):
        pass
    return checkpoint


def test_no_known_word_is_in_any_file(store: Store, place: Path, look: Look) -> None:
    checkpoint = fill(store)
    seen: dict[str, bytes] = look(place)
    with store.draft("state/held") as draft:  # also while something is being written
        draft.put("part", WORDS[4].encode() * 300_000)
        seen |= look(place)
    store.prune(Last(1))
    seen |= look(place)
    forbidden = [word.encode() for word in WORDS]
    forbidden += [checkpoint.id.encode(), bytes.fromhex(checkpoint.digest)]
    forbidden += [checkpoint.id.replace("-", "").encode(), bytes.fromhex(checkpoint.parents[0][:8])]
    forbidden += [chunk_id(f"{WORDS[4]} 1 ".encode()), b"checkpoint", b"commit"]
    assert len(seen) > 4
    for name, data in seen.items():
        for word in forbidden[:-3]:
            assert word not in data, (name, word)
        if name != "holdfast.json":
            assert not any(word in data for word in forbidden[-3:]), name


def test_nor_in_any_object_of_a_bucket(on_s3: str, holdfast_home: Path, look: Look) -> None:
    """Nor in what this machine keeps of it."""
    with open_store(on_s3, encrypt=True, secret=Secret("file", bytes(32))) as store:
        checkpoint = fill(store)
        store.prune(Last(1))
        assert store.verify(deep=True).ok
        bucket = store._ledger.backend.bucket  # type: ignore[attr-defined]
        kept = {one.key: bucket.get(one.key) for one in bucket.listed("")}
        kept |= look(holdfast_home / "cache")
    assert len(kept) > 10
    for name, data in kept.items():
        for word in (*(word.encode() for word in WORDS), bytes.fromhex(checkpoint.digest)):
            assert word not in data, (name, word)


def test_everything_else_is_as_in_any_store(store: Store, place: Path) -> None:
    checkpoint = fill(store)
    assert store.encrypted
    assert store.verify(deep=True).ok
    with open_store(place) as again:
        assert again.read(checkpoint, WORDS[5])[:9] == b"yggdrasil"
        assert again.value(checkpoint, f"{WORDS[5]}-tree") == {WORDS[4]: [WORDS[4]] * 40_000}
        assert again.usage() == store.usage()
        assert again.resolve(f"state/{WORDS[0]}~1").subject.name == WORDS[0]
        again.prune(Last(1))
        assert again.verify(deep=True).ok


def test_known_plaintext_cannot_be_looked_for(
    store: Store, save: Save, place: Path, look: Look, noise: Callable[..., bytes]
) -> None:
    """Who has a copy of the store and guesses what is in it finds no id, no hash and no key of it:
    neither of the whole, nor of any chunk or block that it is made of."""
    secret = noise(3_000_000)
    for split in ("whole", "content", "pages", "segment"):
        save(secret, split, part=f"{split}-part", subject=f"state/{split}")
    save({"rows": [secret[:200_000].hex()] * 3}, "structure")
    ledger = store._ledger
    guessed = {chunk for volume in ledger.backend.volumes() for chunk in ids_in(store, volume.name)}
    assert len(guessed) > 50
    guessed |= {chunk_id(secret), *(one.id for one in ledger.catalogue.all_records())}
    guessed |= {bytes.fromhex(one.digest) for one in store.list()}
    guessed |= {
        part.root for r in ledger.catalogue.all_records() for part in ledger.part_records(r)
    }
    everything = b"".join(name.encode() + data for name, data in look(place).items())
    for one in guessed:
        assert one[:8] not in everything  # 64 bits of it would be enough to tell
        assert one[:8].hex().encode() not in everything


def test_the_same_content_looks_different_in_every_store(
    tmp_path: Path, look: Look, noise: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor can two stores be compared, not even with the same key file."""
    new_key_file(tmp_path / "shared")
    monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEY_FILE", str(tmp_path / "shared"))
    seen = []
    for name in ("one", "two"):
        with open_store(tmp_path / name, encrypt=True) as store, store.draft("state/x") as draft:
            draft.put("part", noise(2_000_000), "segment")
            draft.commit()
        (pack,) = look(tmp_path / name / "packs").values()
        seen.append(pack[64:-64])  # between its head and its foot
    one, two = ({data[i : i + 16] for i in range(0, len(data), 16)} for data in seen)
    assert len(one) > 100_000
    assert not {piece for piece in one & two if any(piece)}


def ids_in(store: Store, volume: bytes) -> list[bytes]:
    store._ledger.library.learn([volume])
    return [chunk for chunk, _ in store._ledger.library.index.rows(volume)]


def test_equal_bytes_are_stored_once(store: Store, save: Save, noise: Callable[..., bytes]) -> None:
    data = noise(3_000_000)
    first = save(data, "segment")
    again = save(data, "segment", subject="state/other")
    assert first.stored_bytes > 3_000_000
    assert again.stored_bytes < 5000


@pytest.mark.parametrize("split", ["segment", "pages"])
@pytest.mark.parametrize("skew", [0, 16])
def test_a_mapping_is_decrypted_into_memory_without_a_name(
    store: Store, save: Save, noise: Callable[..., bytes], split: str, skew: int
) -> None:
    data = noise(2_000_000) + bytes(1_000_000) + noise(1234)
    save(data, split, skew=skew)
    with store.map("state/x", "part", writable=True) as mapping:
        assert mapping.mapped_bytes == 0
        assert mapping.verified is True  # already: nothing is shown that was not
        assert mapping.view == data
        assert mapping.file is not None
        assert "memfd:" in os.readlink(f"/proc/self/fd/{mapping.file}")
        assert not os.get_inheritable(mapping.file)
        mapping.view[:5] = b"mine!"
        # Another process that is handed it sees what was stored, and cannot change it.
        assert os.pread(mapping.file, len(data), skew) == data
        with pytest.raises(PermissionError):
            os.pwrite(mapping.file, b"x", 0)
        assert store.read("state/x", "part") == data
        fd = mapping.file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_mapping_of_damaged_bytes_is_refused_at_once(
    store: Store, save: Save, place: Path, noise: Callable[..., bytes]
) -> None:
    save(noise(2_000_000), "segment")
    (pack,) = (place / "packs").iterdir()
    held = bytearray(pack.read_bytes())
    held[1_000_000] ^= 1
    pack.write_bytes(held)
    with pytest.raises(Corrupt):
        store.map("state/x", "part")
    links = [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    assert not [link for link in links if "holdfast-part" in link]


def test_the_digest_is_that_of_the_plaintext(store: Store, tmp_path: Path) -> None:
    checkpoint = fill(store)
    stream = io.BytesIO()
    store.export(checkpoint, stream)
    stream.seek(0)
    with open_store(tmp_path / "plain") as plain:
        came = plain.import_(stream)
        assert came.digest == checkpoint.digest
        assert plain.verify(deep=True).ok
        back = io.BytesIO()
        plain.export(came, back)
    back.seek(0)
    with open_store(tmp_path / "third", encrypt=True, passphrase="other") as third:
        assert third.import_(back).digest == checkpoint.digest
        assert third.read(came, WORDS[5]) == store.read(checkpoint, WORDS[5])
        assert third.verify(deep=True).ok


def test_a_flipped_bit_anywhere_is_named(store: Store, place: Path, save: Save) -> None:
    save(b"some content " * 200_000, "pages")
    save({"small": 1}, "structure", subject="state/small")
    store.close()
    files = [*(place / "packs").iterdir(), *(place / "log").glob("*.log")]
    for path in files:
        good = path.read_bytes()
        for at in range(0, len(good), max(1, len(good) // 60)):
            bad = bytearray(good)
            bad[at] ^= 1 << at % 8
            path.write_bytes(bad)
            with open_store(place) as again:
                assert not again.verify(deep=True).ok, (path.name, at)
        path.write_bytes(good)


def test_boxes_cannot_change_places(store: Store, save: Save) -> None:
    """Who may write to the directory can move boxes about, and gains nothing by it."""
    cipher = store._ledger.cipher
    box = cipher.seal(b"content", b"entry" + (1).to_bytes(8, "little"))
    with pytest.raises(Corrupt):
        cipher.open(box, b"entry" + (2).to_bytes(8, "little"))
    with pytest.raises(Corrupt):
        cipher.open(box[:20], b"entry")
    assert cipher.seal(b"content", b"") != cipher.seal(b"content", b"")


# -- plaintext and other keys


def test_plaintext_is_refused(store: Store, place: Path, save: Save) -> None:
    save(b"secret")
    with pytest.raises(Denied):
        Store(LocalBackend(place), load_keyring())  # without a key: nothing can be written at all
    # Somebody writes to the log behind our back, with our own signature.
    from holdfast.store.log.entries import Drop, encode_entry
    from holdfast.store.log.frames import Signed, signed_message

    backend = LocalBackend(place)
    backend.entries(0)
    header = encode_entry(Drop(ids=(b"i" * 16,), time=1))
    seq = store.resolve("state/x").sequence + 1
    key_id, mac = load_keyring().sign(signed_message(seq, header))
    backend.append(Signed(seq=seq, key_id=key_id, mac=mac, header=header))
    with open_store(place) as again:
        assert len(again.list()) == 1
        assert any("not encrypted" in problem.what for problem in again.verify().problems)


def test_a_plain_pack_is_refused(store: Store, place: Path, save: Save, tmp_path: Path) -> None:
    save(secrets.token_bytes(2_000_000))
    with open_store(tmp_path / "plain") as plain:
        save(secrets.token_bytes(2_000_000), into=plain)
    (theirs,) = (tmp_path / "plain" / "packs").iterdir()
    (place / "packs" / theirs.name).write_bytes(theirs.read_bytes())
    report = store.verify(deep=True)
    assert any("not encrypted" in problem.what for problem in report.problems)
    (ours,) = (path for path in (place / "packs").iterdir() if path.name != theirs.name)
    (tmp_path / "plain" / "packs" / ours.name).write_bytes(ours.read_bytes())
    with open_store(tmp_path / "plain") as plain:
        assert any("encrypted" in problem.what for problem in plain.verify(deep=True).problems)


def test_no_key_and_a_wrong_key_say_so(
    store: Store, place: Path, save: Save, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save()
    with pytest.raises(Denied, match="does not open"):
        open_store(place, passphrase="wrong")
    other = tmp_path / "other.key"
    new_key_file(other)
    with pytest.raises(Denied, match="the key file does not open"):
        open_store(place, key_file=other)
    monkeypatch.delenv("HOLDFAST_ENCRYPTION_KEY_FILE")
    with pytest.raises(Denied, match="is encrypted") as caught:
        open_store(place)
    assert "HOLDFAST_ENCRYPTION_KEY_FILE" in str(caught.value.hint)


def test_without_its_slots_a_store_is_not_taken_for_a_plain_one(
    store: Store, place: Path, save: Save
) -> None:
    save()
    for path in (place / "keys").iterdir():
        path.unlink()
    with pytest.raises(Denied, match="slots"):
        open_store(place)
    with pytest.raises(Conflict):
        open_store(place, encrypt=True, passphrase="new")


def test_another_data_key_is_refused(place: Path, store: Store) -> None:
    with pytest.raises(Denied):
        Store(LocalBackend(place), load_keyring(), AesCipher(os.urandom(32)))


def test_a_plain_store_stays_plain(tmp_path: Path) -> None:
    with open_store(tmp_path / "plain") as plain, plain.draft("state/x") as draft:
        draft.put("part", b"data")
        draft.commit()
    with pytest.raises(Conflict, match="not encrypted"):
        open_store(tmp_path / "plain", encrypt=True, passphrase="x")
    with pytest.raises(BadInput, match="not encrypted"):
        open_store(tmp_path / "plain", passphrase="x")
    with pytest.raises(UsageError):
        open_store(tmp_path / "new", encrypt=True, environ={"HOME": str(tmp_path)})


def test_whoever_had_it_open_as_a_plain_one_writes_nothing_more(tmp_path: Path) -> None:
    place = tmp_path / "store"
    early = open_store(place)
    open_store(place, encrypt=True, passphrase="x").close()
    with pytest.raises(Denied):
        early.draft("state/x")
    assert all(b"plaintext" not in path.read_bytes() for path in place.rglob("*") if path.is_file())


def test_in_memory_too(tmp_path: Path) -> None:
    with open_store("memory://", encrypt=True, passphrase="x") as store:
        checkpoint = fill(store)
        assert store.verify(deep=True).ok
        backend = store._ledger.backend
        for volume in backend.volumes():
            assert b"yggdrasil" not in backend.read(volume.name, 0, volume.size)
        assert store.read(checkpoint, WORDS[5])


# -- crashes

WRITER = """
import sys
from holdfast.store import open_store
store = open_store(sys.argv[1])
for number in range(10**6):
    with store.draft("state/x", reason=str(number)) as draft:
        draft.put("part", number.to_bytes(8, "big") * (10 if number % 3 else 200_000))
        draft.commit()
    print(number, flush=True)
"""


def test_what_was_acknowledged_survives_kill_9(place: Path) -> None:
    for turn in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(place)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(4 + turn):
            last = int(writer.stdout.readline())
        writer.kill()
        writer.wait()
        with open_store(place) as store:
            found = store.resolve("state/x")
            assert int(found.reason) >= last
            assert store.verify(deep=True).ok
            number = int(found.reason)
            expected = number.to_bytes(8, "big") * (10 if number % 3 else 200_000)
            assert store.read(found, "part") == expected
            store.prune(Last(2))
            assert store.verify(deep=True).ok
