"""Importing: an archive's checkpoints come into a store. An archive that is not right brings none
of them; an import that is interrupted is gone on with by doing it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from holdfast.model.checkpoint import Checkpoint
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import id_bytes
from holdfast.store.transfer.archive import ArchiveReader, ChunkFrame
from holdfast.store.transfer.inventory import Inventory
from holdfast.store.transfer.receiver import Receiver, check_proof, is_here
from holdfast.store.transfer.waybill import Waybill

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an archive brought. `checkpoint` is the one it is about; with `dry_run` they are as they
    would be."""

    checkpoint: Checkpoint
    imported: tuple[Checkpoint, ...]
    already: tuple[Checkpoint, ...]  # those that the store had before
    archive_bytes: int
    dry_run: bool = False


def import_archive(
    ledger: Ledger, stream: BinaryIO, *, trust: bool, progress: Progress | None
) -> ImportReport:
    """Take an archive in; raises Corrupt, BadInput, Unsupported or Conflict, and then nothing of it
    is in the store."""
    reader = ArchiveReader(stream)
    with Receiver(ledger) as receiver:
        ids = []
        for one in _watched(reader, progress):
            if isinstance(one, Waybill):
                receiver.announce(one)
                ids.append(one.id)
            else:
                receiver.take(one.chunk, one.content)
        new = receiver.commit(trust=trust)
    made = {id_bytes(one.id) for one in new}
    now = ledger.catalogue
    return ImportReport(
        checkpoint=now.record(ids[-1]).checkpoint(),
        imported=tuple(new),
        already=tuple(now.record(one).checkpoint() for one in ids if one not in made),
        archive_bytes=reader.position,
    )


def examine(ledger: Ledger, stream: BinaryIO, progress: Progress | None) -> ImportReport:
    """Read and check a whole archive, and say what importing it would bring."""
    reader = ArchiveReader(stream)
    inventory = Inventory()
    for one in _watched(reader, progress):
        if isinstance(one, Waybill):
            check_proof(ledger.keyring, one)
            inventory.announce(one)
        else:
            inventory.arrive(one.chunk, one.content)
    inventory.check()
    now = ledger.refresh()
    found = [
        one.checkpoint(foreign=not ledger.keyring.accepts_proof(one.maker, one.proof, one.digest))
        for one in inventory.waybills
    ]
    known = [is_here(now, one) for one in inventory.waybills]
    return ImportReport(
        checkpoint=found[-1],
        imported=tuple(one for one, here in zip(found, known, strict=True) if not here),
        already=tuple(one for one, here in zip(found, known, strict=True) if here),
        archive_bytes=reader.position,
        dry_run=True,
    )


def _watched(reader: ArchiveReader, progress: Progress | None) -> Iterator[Waybill | ChunkFrame]:
    """The frames of an archive, while somebody is told how far it is."""
    done = 0
    for one in reader.frames():
        yield one
        if isinstance(one, ChunkFrame) and progress is not None:
            done += len(one.content.plain)
            progress(done, max(done, reader.info.size))
