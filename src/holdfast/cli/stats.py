"""`holdfast stats`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation

if TYPE_CHECKING:
    from holdfast.store import Store


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
    prune_would_remove: int
    prune_would_free_bytes: int

    @property
    def disk_bytes(self) -> int:
        return self.packs_bytes + self.log_bytes

    @property
    def dedup_ratio(self) -> float | None:
        """How many times each byte is used; None while there is none."""
        return round(self.content_bytes / self.unique_bytes, 2) if self.unique_bytes else None


@click.command("stats")
@click.pass_obj
def command(invocation: Invocation) -> None:
    """Show what the store holds and what that takes on disk.

    What prune would free is told for its default policy: the last 50 of each subject and
    everything tagged stay.
    """
    from dataclasses import asdict

    with invocation.store() as store:
        usage = measure(invocation, store)
    document = {**asdict(usage), "disk_bytes": usage.disk_bytes, "dedup_ratio": usage.dedup_ratio}
    invocation.show(document, lambda: _page(usage))


def measure(invocation: Invocation, store: Store) -> Usage:
    """Look at the log and at the packs' tables; no content is read."""
    from holdfast.store.keys import load_keyring
    from holdfast.store.ledger import Ledger
    from holdfast.store.opening import open_backend

    checkpoints = store.list()
    plan = store.prune(dry_run=True)
    backend = open_backend(store.url, create=False)
    try:
        ledger = Ledger(backend, load_keyring(invocation.environ))
        volumes = backend.volumes()
        plain = {
            chunk: place.plain
            for volume in volumes
            for chunk, place in ledger.library.rows(volume.name)
        }
    finally:
        backend.close()
    return Usage(
        store=store.url,
        subjects=len({each.subject for each in checkpoints}),
        checkpoints=len(checkpoints),
        content_bytes=sum(each.size_bytes for each in checkpoints),
        chunks=len(plain),
        unique_bytes=sum(plain.values()),
        packs=sum(volume.is_pack for volume in volumes),
        packs_bytes=sum(volume.size for volume in volumes if volume.is_pack),
        log_bytes=sum(volume.size for volume in volumes if not volume.is_pack),
        prune_would_remove=len(plan.removed),
        prune_would_free_bytes=plan.reclaimed_bytes,
    )


def _page(usage: Usage) -> str:
    from holdfast.cli.table import Column, table
    from holdfast.server.words import count, size

    ratio = f" (dedup ratio {usage.dedup_ratio:g})" if usage.dedup_ratio else ""
    removed = count(usage.prune_would_remove, "checkpoint")
    freed = size(usage.prune_would_free_bytes)
    rows = [
        (
            "holds",
            f"{count(usage.checkpoints, 'checkpoint')} of {count(usage.subjects, 'subject')}",
        ),
        ("content", size(usage.content_bytes)),
        ("unique", f"{size(usage.unique_bytes)} in {count(usage.chunks, 'chunk')}{ratio}"),
        ("on disk", size(usage.disk_bytes)),
        ("  packs", f"{size(usage.packs_bytes)} in {count(usage.packs, 'file')}"),
        ("  log", size(usage.log_bytes)),
        ("prune", f"would remove {removed} and free {freed}"),
    ]
    return table((Column("STORE", "dim"), Column(usage.store)), rows)
