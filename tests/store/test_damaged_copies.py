"""Whatever is damaged on this machine or in a volume is never copied elsewhere."""

from __future__ import annotations

import io
import secrets
from pathlib import Path

import pytest
from tests.store.conftest import Noise, Save

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Corrupt
from holdfast.store import Store, open_store
from holdfast.store.collect import PruneReport
from holdfast.store.log.catalogue import Record

MB = 1_000_000


def make_sparse_pack(store: Store, noise: Noise) -> Checkpoint:
    """A checkpoint that needs a part of one pack, of which the rest is dead."""
    with store.draft("state/x") as draft:
        draft.put("dead", noise(3 * MB))
        draft.put("pages", noise(600_000, 1), "pages")
        draft.put("words", b"alpha beta gamma " * 20_000)  # is stored compressed
        first = draft.commit()
    with store.draft("state/x") as draft:
        draft.keep("pages")
        draft.keep("words")
        second = draft.commit()
    store.delete(first)
    return second


def is_whole(store: Store, checkpoint: Checkpoint, noise: Noise) -> bool:
    return (
        store.read(checkpoint, "pages") == noise(600_000, 1)
        and store.read(checkpoint, "words") == b"alpha beta gamma " * 20_000
        and store.verify(deep=True).ok
    )


def blank(path: Path) -> None:
    """What a power loss leaves of a file that was not synced: its length, and zeros. The table at
    its end is left, as another page of the file was written back."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(64)
        file.write(bytes(size - 64 - 4096))


def cached(home: Path, pattern: str) -> list[Path]:
    found = [path for path in home.glob(f"cache/*/{pattern}") if path.stat().st_size > 100_000]
    assert found
    return found


def test_prune_copies_no_damaged_cache(on_s3: str, holdfast_home: Path, noise: Noise) -> None:
    with open_store(on_s3) as store:
        kept = make_sparse_pack(store, noise)
        for path in cached(holdfast_home, "packs/*"):
            blank(path)
        report = store.prune()
        assert report.reclaimed_bytes > 2 * MB
        assert report.damaged == ()
        assert is_whole(store, kept, noise)


def test_prune_leaves_unreadable_volumes(store: Store, place: Path, noise: Noise) -> None:
    kept = make_sparse_pack(store, noise)
    (pack,) = place.glob("packs/*")
    blank(pack)
    before = pack.read_bytes()
    with open_store(place) as again:
        report = again.prune()
        assert_left(again, report, kept, pack.stem)
        assert pack.read_bytes() == before
        again.delete(kept)
        assert again.prune().damaged == ()
    assert not pack.exists()


def test_prune_leaves_unreadable_objects(on_s3: str, holdfast_home: Path, noise: Noise) -> None:
    """Both the copy on this machine and the object in the bucket are damaged."""
    with open_store(on_s3) as store:
        kept = make_sparse_pack(store, noise)
        (copy,) = cached(holdfast_home, "packs/*")
        blank(copy)
        bucket = store._ledger.backend.bucket  # type: ignore[attr-defined]
        bucket.put(f"packs/{copy.name}", copy.read_bytes())
        assert_left(store, store.prune(), kept, copy.name.removesuffix(".pack"))
        assert bucket.get(f"packs/{copy.name}") is not None


def assert_left(store: Store, report: PruneReport, kept: Checkpoint, volume: str) -> None:
    assert report.reclaimed_bytes == 0
    assert [problem.where for problem in report.damaged] == [f"volume {volume}"]
    with pytest.raises(Corrupt):
        store.read(kept, "pages")


def test_prune_copies_from_another_pack(store: Store, place: Path, noise: Noise) -> None:
    """Of a chunk that two packs have, the good one is copied."""
    drafts = []
    for subject in ("state/x", "state/twin"):  # neither knows of the other
        drafts.append(store.draft(subject))
        drafts[-1].put("dead", noise(3 * MB, len(drafts)))
        drafts[-1].put("pages", noise(600_000), "pages")
    first, twin = (draft.commit() for draft in drafts)
    with store.draft("state/x") as draft:
        draft.keep("pages")
        kept = draft.commit()
    store.delete(first)
    damaged = next(
        path
        for path in place.glob("packs/*")
        if bytes.fromhex(path.stem) in store._ledger.catalogue.volumes(record_of(store, kept))[0]
    )
    blank(damaged)
    with open_store(place) as again:
        report = again.prune()
        assert report.damaged == ()
        assert not damaged.exists()
        for checkpoint in (kept, twin):
            assert again.read(checkpoint, "pages") == noise(600_000)
        assert again.verify(deep=True).ok


def record_of(store: Store, checkpoint: Checkpoint) -> Record:
    return store._ledger.catalogue.record(bytes.fromhex(checkpoint.id.replace("-", "")))


def test_folding_copies_no_damaged_cache(on_s3: str, holdfast_home: Path, noise: Noise) -> None:
    """The entries' bodies, too, are kept on this machine, and moved to a pack when the log is
    folded."""
    with open_store(on_s3) as store:
        made = []
        for i in range(6):
            with store.draft("state/x") as draft:
                draft.put("part", noise(900_000, i), "pages")
                made.append(draft.commit())
        for path in cached(holdfast_home, "log/*"):
            blank(path)
        assert store.prune().damaged == ()
        assert not any(one.size > MB for one in store._ledger.backend.volumes() if not one.is_pack)
        for i, checkpoint in enumerate(made):
            assert store.read(checkpoint, "part") == noise(900_000, i)
        assert store.verify(deep=True).ok


@pytest.mark.parametrize(("size", "kept_in"), [(3 * MB, "packs/*"), (500_000, "log/*")])
def test_damaged_caches_never_travel(
    on_s3: str, holdfast_home: Path, noise: Noise, size: int, kept_in: str
) -> None:
    with open_store(on_s3) as store, open_store(f"memory://{secrets.token_hex(8)}") as other:
        with store.draft("state/x") as draft:
            draft.put("noise", noise(size), "pages")
            draft.put("words", b"alpha beta gamma " * 90_000)
            made = draft.commit()
        archive = io.BytesIO()
        for carry in (lambda: store.export(made, archive), lambda: store.copy_to(other)):
            for path in cached(holdfast_home, kept_in):
                blank(path)
            with open_store(on_s3) as store:  # one that remembers nothing
                carry()
        archive.seek(0)
        assert other.read(made, "noise") == noise(size)
        with open_store(f"memory://{secrets.token_hex(8)}") as third:
            third.import_(archive)
            assert third.verify(deep=True).ok
        assert other.verify(deep=True).ok


def test_rescued_chunks_are_verified(store: Store, place: Path, save: Save, noise: Noise) -> None:
    """A draft that refers to a chunk whose pack is given up meanwhile stores it anew: from the very
    pack, which is damaged by then."""
    first = save(noise(3 * MB), "pages")
    with open_store(place) as other, store.draft("state/y") as draft:
        draft.put("part", noise(3 * MB), "pages")  # refers to what is there
        (pack,) = place.glob("packs/*")
        other.delete(first)
        other.prune()
        assert pack.exists(), "the draft holds it"
        blank(pack)
        with pytest.raises(Corrupt, match="damaged"):
            draft.commit()
    assert store.head("state/y") is None
