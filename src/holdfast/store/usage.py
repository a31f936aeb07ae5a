"""Usage: what a store holds, and what that takes. No content is read for it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.store.ledger import Ledger


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
    plain = {
        chunk: place.plain
        for volume in volumes
        for chunk, place in ledger.library.rows(volume.name)
    }
    return Usage(
        store=ledger.backend.url,
        subjects=len({record.commit.subject for record in records}),
        checkpoints=len(records),
        content_bytes=sum(record.commit.size for record in records),
        chunks=len(plain),
        unique_bytes=sum(plain.values()),
        packs=sum(volume.is_pack for volume in volumes),
        packs_bytes=sum(volume.size for volume in volumes if volume.is_pack),
        log_bytes=sum(volume.size for volume in volumes if not volume.is_pack),
    )
