"""Archives between stores under different keys, or under none: what one key sealed is sealed with
the other when it arrives, on every backend, and neither key travels."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.model.checkpoint import Checkpoint
from holdfast.store import Store, open_store
from holdfast.store.keys import Key, Keyring
from holdfast.store.retention import Last
from holdfast.store.slots import Secret

Look = Callable[[Path], dict[str, bytes]]
Noise = Callable[..., bytes]
Open = Callable[[str], Store]

WORD = b"flibbertigibbet"
KINDS = ("plain", "ours", "theirs")
BACKENDS = ("directory", "bucket", "memory")
# From every kind to every kind, and each kind from and to every backend.
ROADS = [
    (f"{BACKENDS[(i + j) % 3]} {before}", f"{BACKENDS[(i + j + 1) % 3]} {after}")
    for i, before in enumerate(KINDS)
    for j, after in enumerate(KINDS)
]
SECRETS = {"ours": Secret("file", b"o" * 32), "theirs": Secret.passphrase("open sesame")}


@pytest.fixture
def opened(tmp_path: Path, on_s3: str) -> Iterator[Open]:
    """Opens a new store of a backend and a kind, each with a signing key of its own."""
    stores: list[Store] = []

    def make(what: str) -> Store:
        backend, kind = what.split()
        number = len(stores)
        address = {
            "directory": str(tmp_path / f"{number}"),
            "bucket": f"{on_s3}/{number}",
            "memory": "memory://",
        }[backend]
        stores.append(
            open_store(
                address,
                keyring=Keyring(Key.generate()),
                encrypt=kind != "plain",
                secret=SECRETS.get(kind),
            )
        )
        assert stores[-1].encrypted == (kind != "plain")
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def stored(store: Store, look: Look) -> bytes:
    """Every byte that a store keeps, wherever that is."""
    backend = store._ledger.backend
    if store.url.startswith("s3:"):
        bucket = backend.bucket  # type: ignore[attr-defined]
        return b"".join(bucket.get(one.key) for one in bucket.listed(""))
    if store.url.startswith("memory:"):
        return b"".join(backend.read(one.name, 0, one.size) for one in backend.volumes())
    return b"".join(look(Path(store.url.removeprefix("file://"))).values())


def fill(store: Store, noise: Noise) -> list[Checkpoint]:
    """A part of every kind, with a word that can be looked for; the second shares most of it."""
    made = []
    for step in range(2):
        image = bytearray(WORD + noise(1_200_000))
        image[600_000] = step
        with store.draft("session/x", reason=f"step {step}") as draft:
            draft.put("memory", bytes(image), split="pages")
            draft.put("segment", bytes(image[:700_000]), split="segment")
            draft.put("content", bytes(image[:300_000]), split="content")
            draft.put("value", {WORD.decode(): [step] * 2000}, split="structure")
            made.append(draft.commit())
    return made


@pytest.mark.parametrize(("before", "after"), ROADS)
def test_an_archive_changes_keys_on_its_way(
    opened: Open, before: str, after: str, look: Look, noise: Noise
) -> None:
    """Also between two stores that the same secret opens: their data keys are different ones."""
    source, target = opened(before), opened(after)
    line = fill(source, noise)
    archive = io.BytesIO()
    source.export("session/x", archive, ancestors=True)
    assert WORD in archive.getvalue()  # it is not encrypted, as the guide says
    archive.seek(0)
    report = target.import_archive(archive)
    assert [(one.id, one.digest) for one in report.imported] == [(o.id, o.digest) for o in line]
    for one in line:
        for part in source.show(one).parts:
            assert target.read(one, part.name, trust=True) == source.read(one, part.name)
    assert target.verify(deep=True).ok
    assert (WORD in stored(target, look)) == ("plain" in after)
    # It is a store like any other: what comes next shares with what came, and can be pruned.
    with target.draft("session/x") as draft:
        draft.put("memory", target.read(line[1], "memory", trust=True), split="pages")
        assert draft.commit().stored_bytes < 50_000
    target.prune(Last(1))
    assert target.verify(deep=True).ok


def test_there_and_back_it_is_the_same_archive(opened: Open, noise: Noise) -> None:
    """Encrypted under one key, under another, and in the open: an archive tells of none of it."""
    first, *others = (opened(f"directory {kind}") for kind in ("ours", "theirs", "plain", "ours"))
    fill(first, noise)
    archives = []
    for store in (first, *others):
        stream = io.BytesIO()
        store.export("session/x", stream, ancestors=True)
        archives.append(stream.getvalue())
        for other in others:
            stream.seek(0)
            other.import_(stream, trust=True)
    sizes = {len(archive) for archive in archives}
    assert len(sizes) == 1
    assert not any(secret.value in archive for archive in archives for secret in SECRETS.values())
