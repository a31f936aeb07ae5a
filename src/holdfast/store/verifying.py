"""Verifying: whether everything the log promises is there, byte for byte if asked."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.errors import Corrupt, HoldfastError, NotFound
from holdfast.model.report import Problem, Verification
from holdfast.store.backends.contract import VolumeInfo
from holdfast.store.chunks.chunk import Location, chunk_id
from holdfast.store.chunks.packs import (
    BLOCK,
    check_head,
    read_table,
    stored_check,
    table_size,
)
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue, Record, id_text
from holdfast.store.parts.blocks import LEAF_BLOCKS, pages_root
from holdfast.store.parts.contents import part_chunks
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.parts.part import PartRecord, digest, pieces_root, split_ids
from holdfast.store.parts.streams import part_leaves

Progress = Callable[[int, int], None]
_LOST = (
    "what it said is lost: a checkpoint, a tag, a pin or a move of a head; a checkpoint comes back"
    " by `holdfast copy` from another store that has it, or by `holdfast import` of its file;"
    " then `holdfast prune --accept-loss` gives up the rest"
)


def verify(ledger: Ledger, deep: bool, progress: Progress | None) -> Verification:
    """Look at the log, at every checkpoint's parts, and with `deep` at every stored byte."""
    return _Inspection(ledger, deep, progress).run()


class _Inspection:
    def __init__(self, ledger: Ledger, deep: bool, progress: Progress | None) -> None:
        self._ledger = ledger
        self._deep = deep
        self._volumes = ledger.backend.originals() if deep else ledger.backend
        self._progress = progress
        self._problems: list[Problem] = []
        self._notes: list[str] = []
        self._chunks = 0
        self._bytes = 0
        self._seen: set[tuple[bytes, bytes]] = set()

    def run(self) -> Verification:
        ledger = self._ledger
        hold = ledger.backend.hold(ledger.catalogue.seq)
        try:
            ledger.library.index.forget_damage()
            now = ledger.refresh()
            self._look_at_log(now)
            volumes = {volume.name: volume for volume in ledger.backend.volumes()}
            self._look_at_volumes(now, volumes)
            for record in now.all_records():
                self._look_at_checkpoint(now, record, volumes)
        finally:
            hold.release()
        return Verification(
            deep=self._deep,
            problems=tuple(self._problems),
            notes=tuple(self._notes),
            checkpoints=len(now.records),
            chunks=self._chunks,
            bytes_read=self._bytes,
        )

    # -- the log

    def _look_at_log(self, now: Catalogue) -> None:
        for damage in self._ledger.backend.audit():
            if damage.torn:
                self._notes.append(f"log/{damage.file}: {damage}")
            else:
                hint = "" if damage.unsettled else _LOST
                self._problem(f"log/{damage.file}", str(damage), hint=hint)
        self._problems.extend(now.problems)
        self._notes.extend(now.notes)

    # -- volumes

    def _look_at_volumes(self, now: Catalogue, volumes: dict[bytes, VolumeInfo]) -> None:
        live = now.live_volumes()
        total = sum(volume.size for volume in volumes.values())
        unneeded = 0
        for volume in volumes.values():
            if volume.is_pack and volume.name not in live:
                unneeded += volume.size
            try:
                self._look_at_volume(now, volume)
            except NotFound as error:
                # What nothing needs may be collected by somebody else while we look at it.
                if volume.name in live:
                    affected = self._affected(now, volume.name)
                    self._problem(f"volume {volume.name.hex()}", str(error), affected)
            if self._progress is not None:
                self._progress(self._bytes, total)
        if unneeded:
            self._notes.append(
                f"{unneeded} bytes are in packs that no checkpoint needs; prune frees them"
            )

    def _look_at_volume(self, now: Catalogue, volume: VolumeInfo) -> None:
        if volume.is_pack and (volume.name in now.named or self._deep):
            self._look_at_pack(now, volume)
        elif self._deep and not volume.is_pack:
            for chunk, place in self._ledger.library.rows(volume.name):
                self._look_at_chunk(now, chunk, place)

    def _look_at_pack(self, now: Catalogue, volume: VolumeInfo) -> None:
        where = f"packs/{volume.name.hex()}.pack"
        try:
            check_head(self._volumes.read(volume.name, 0, BLOCK), volume.name)
            table = read_table(self._volumes, volume.name, volume.size, self._ledger.cipher)
        except NotFound:
            raise
        except HoldfastError as error:
            self._problem(where, str(error), self._affected(now, volume.name))
            return
        self._ledger.library.learn([volume.name])
        if self._deep:
            # By the table in hand: the pack may be collected before somebody reads it again.
            for row, (chunk, place) in enumerate(table):
                self._look_at_chunk(now, chunk, place, table.check(row))
            self._look_between(volume, [place for _, place in table], len(table))

    def _look_between(self, volume: VolumeInfo, places: list[Location], rows: int) -> None:
        """Bytes that no chunk covers must be zero."""
        at = BLOCK
        table = volume.size - BLOCK - table_size(rows, self._ledger.cipher)
        ends = [(p.offset, p.offset + p.stored) for p in sorted(places, key=lambda p: p.offset)]
        for start, end in [*ends, (table, table)]:
            if start > at and any(self._volumes.read(volume.name, at, start - at)):
                where = f"packs/{volume.name.hex()}.pack"
                self._problem(where, f"bytes {at} to {start} should be zero and are not")
            at = max(at, end)

    def _look_at_chunk(
        self, now: Catalogue, chunk: bytes, place: Location, check: bytes | None = None
    ) -> None:
        self._chunks += 1
        self._bytes += place.stored
        try:
            stored = self._volumes.read(place.volume, place.offset, place.stored)
            if chunk_id(self._ledger.library.decode(place, stored)) != chunk:
                raise Corrupt("does not match its checksum")
            if check is not None and stored_check(place.codec, stored) != check:
                raise Corrupt("its compressed form is damaged; what it holds can still be read")
        except NotFound:
            raise
        except HoldfastError as error:
            what = f"chunk {chunk.hex()[:16]}: {error}"
            self._problem(place.where, what, self._affected(now, place.volume))

    # -- checkpoints

    def _look_at_checkpoint(
        self, now: Catalogue, record: Record, volumes: dict[bytes, VolumeInfo]
    ) -> None:
        where = f"checkpoint {record.checkpoint().short}"
        needed = {name for names in now.volumes(record) for name in names}
        missing = sorted(name.hex() for name in needed - volumes.keys())
        if missing:
            self._problem(where, f"volume {missing[0]} is missing", (id_text(record.commit.id),))
            return
        try:
            parts = self._ledger.part_records(record)
            _check_digest(record, parts)
            for part in parts:
                self._look_at_part(part)
        except HoldfastError as error:
            self._problem(where, str(error), (id_text(record.commit.id),))

    def _look_at_part(self, part: PartRecord) -> None:
        key = (part.root, part.map)
        if key in self._seen:
            return
        self._seen.add(key)
        library = self._ledger.library
        for chunk in set(part_chunks(library, part)):
            if not library.index.find(chunk):
                raise Corrupt(f"part {part.name!r}: chunk {chunk.hex()[:16]} is missing")
        if part.paged:
            reader = PageReader(library, part)
            if pages_root(reader.tables()) != part.root:
                raise Corrupt(f"part {part.name!r}: its map does not match its root")
            if self._deep:
                self._look_at_blocks(reader)
        elif part.split != "structure":
            pieces = [
                pair
                for leaf in part_leaves(library, part)
                for pair in zip(split_ids(leaf.ids), leaf.lengths, strict=True)
            ]
            if pieces_root(pieces) != part.root:
                raise Corrupt(f"part {part.name!r}: its map does not match its root")

    def _look_at_blocks(self, reader: PageReader) -> None:
        """Blocks put together from several chunks have a checksum of their own."""
        for block in range(reader.block_count):
            if reader.table(block // LEAF_BLOCKS).whole(block % LEAF_BLOCKS) is None:
                reader.read(block)

    def _affected(self, now: Catalogue, volume: bytes) -> tuple[str, ...]:
        return tuple(id_text(record.commit.id) for record in now.dependents([volume]))

    def _problem(
        self, where: str, what: str, affects: tuple[str, ...] = (), hint: str = ""
    ) -> None:
        hint = hint or (
            "checkpoints that share the damaged bytes cannot be restored in full; others can"
            if affects
            else "nothing that can be restored is affected"
        )
        self._problems.append(Problem(where=where, what=what, affects=affects, hint=hint))


def _check_digest(record: Record, parts: tuple[PartRecord, ...]) -> None:
    if digest(record.commit, parts) != record.commit.digest:
        raise Corrupt("its manifest does not match its digest")
