"""Usage: what a store holds, and what that takes. No content is read for it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from holdfast.store.arrays import np
from holdfast.store.ledger import Ledger

_FEW = 100_000  # chunks; more are counted in arrays, of which each chunk takes 24 bytes
_KEY = 16  # bytes of an id that tell it from any other


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a store holds, and what that takes on disk. All sizes are in bytes."""

    store: str
    subjects: int
    checkpoints: int
    content_bytes: int  # of all checkpoints, as if each were kept in full
    chunks: int
    unique_bytes: int  # of the chunks, before compression
    packs: int
    packs_bytes: int
    log_bytes: int

    @property
    def disk_bytes(self) -> int:
        return self.packs_bytes + self.log_bytes

    @property
    def dedup_ratio(self) -> float | None:
        """How many times each byte is used; None while there is none."""
        return round(self.content_bytes / self.unique_bytes, 2) if self.unique_bytes else None


def measure(ledger: Ledger) -> Usage:
    """Look at the log and at the packs' tables."""
    records = ledger.refresh().all_records()
    volumes = ledger.backend.volumes()
    rows = chain.from_iterable(ledger.library.rows(volume.name) for volume in volumes)
    chunks, unique_bytes = unique((chunk, place.plain) for chunk, place in rows)
    return Usage(
        store=ledger.backend.url,
        subjects=len({record.commit.subject for record in records}),
        checkpoints=len(records),
        content_bytes=sum(record.commit.size for record in records),
        chunks=chunks,
        unique_bytes=unique_bytes,
        packs=sum(volume.is_pack for volume in volumes),
        packs_bytes=sum(volume.size for volume in volumes if volume.is_pack),
        log_bytes=sum(volume.size for volume in volumes if not volume.is_pack),
    )


def unique(rows: Iterable[tuple[bytes, int]], few: int = _FEW) -> tuple[int, int]:
    """How many chunks there are, and how many bytes they have, when each counts once. Takes ids and
    sizes: of a large store there are more than would fit into memory as objects."""
    ids, sizes = bytearray(), array("Q")
    for chunk, size in rows:
        ids += chunk[:_KEY]
        sizes.append(size)
    if len(sizes) <= few:
        starts = range(0, len(ids), _KEY)
        found = {bytes(ids[at : at + _KEY]): size for at, size in zip(starts, sizes, strict=True)}
        return len(found), sum(found.values())
    keys = np.frombuffer(ids, dtype=np.uint64).reshape(-1, 2)
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    keys = keys[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    return int(first.sum()), int(np.frombuffer(sizes, dtype=np.uint64)[order][first].sum())
