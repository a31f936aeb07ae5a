"""What the backend of a bucket keeps in memory: of the volumes that were used last alone."""

from __future__ import annotations

from typing import Any

from tests.store.conftest import Noise

from holdfast.store import open_store
from holdfast.store.backends.objects.backend import Latest


def test_the_oldest_is_forgotten() -> None:
    kept: Latest[int] = Latest(3)
    for number in range(3):
        kept.put(bytes([number]), number)
    assert kept.get(b"\0") == 0
    kept.put(b"\3", 3)
    assert [kept.get(bytes([number])) for number in range(4)] == [0, None, 2, 3]
    kept.drop(b"\2")
    kept.drop(b"\2")
    assert (kept.get(b"\2"), len(kept)) == (None, 2)


def test_nothing_grows_with_reading(on_s3: str, noise: Noise) -> None:
    with open_store(on_s3) as store:
        for number in range(6):
            with store.draft(f"state/{number}") as draft:
                draft.put("part", noise(2_000_000, number), "pages")
                draft.commit()
        backend: Any = store._ledger.backend
        for volume in backend.volumes():  # as on another machine
            if volume.is_pack:
                backend.distrust(volume.name, 0)
    with open_store(on_s3) as store:
        for number in range(6):
            assert store.read(f"state/{number}", "part") == noise(2_000_000, number)
        backend = store._ledger.backend
        assert len(backend._fetching) == 0
        for kept in (backend._reads, backend._tails):
            assert len(kept) <= kept._limit
        store.delete(*(one.id for one in store.list()))
        store.prune()
        assert (len(backend._reads), len(backend._tails)) == (0, 0)
