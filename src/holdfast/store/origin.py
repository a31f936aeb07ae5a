"""Origins: checkpoints that parts are read or taken over from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.errors import NotFound
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Record
from holdfast.store.parts.part import PartRecord

Volumes = Sequence[Sequence[bytes]]  # by the numbers that a checkpoint's parts have for them


@dataclass(frozen=True, slots=True)
class Origin:
    """The parts of a checkpoint, and where their chunks are."""

    parts: dict[str, PartRecord]
    volumes: Volumes

    @classmethod
    def of(cls, ledger: Ledger, record: Record) -> Origin:
        parts = {part.name: part for part in ledger.part_records(record)}
        return cls(parts, ledger.catalogue.volumes(record))

    def part(self, name: str) -> PartRecord:
        """Raises NotFound."""
        found = self.parts.get(name)
        if found is None:
            has = ", ".join(list(self.parts)[:8]) or "no parts"
            raise NotFound(f"the checkpoint has no part {name!r}", hint=f"it has {has}")
        return found
