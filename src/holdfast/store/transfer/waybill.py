"""Waybills: what of a checkpoint travels besides its chunks (spec/archive-v1.md, section 2)."""

from __future__ import annotations

import msgspec

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, Corrupt
from holdfast.model.subject import Subject
from holdfast.store.chunks.chunk import ID_SIZE
from holdfast.store.keys import UNSIGNED
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Record, id_text
from holdfast.store.parts.blocks import BLOCK, LEAF_BLOCKS, PAGE
from holdfast.store.parts.part import PartRecord, check_part_name, digest

MAX_WAYBILL = 64 * 1024 * 1024
_CHECKPOINT_ID = 16
_MAX_SIZE = 1 << 62
HINT = "get the file again from where it was exported"


class Waybill(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A checkpoint on its way."""

    id: bytes
    subject: str
    parents: tuple[bytes, ...]
    reason: str
    stage: str | None
    time: int
    tags: dict[str, str]
    rollback_of: bytes | None
    digest: bytes
    parts: tuple[PartRecord, ...]
    maker: bytes
    proof: bytes
    labels: dict[str, str]
    pinned: bool = False

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def origins(self) -> tuple[bytes, ...]:
        """The checkpoints that must have been there before this one."""
        return self.parents if self.rollback_of is None else (*self.parents, self.rollback_of)

    def checkpoint(self, *, foreign: bool) -> Checkpoint:
        """As it would look in a store that has just taken it in."""
        return Checkpoint(
            id=id_text(self.id),
            subject=Subject.parse(self.subject),
            parents=tuple(id_text(parent) for parent in self.parents),
            reason=self.reason,
            stage=self.stage,
            time=moment.from_micros(self.time),
            digest=self.digest.hex(),
            size_bytes=self.size,
            stored_bytes=0,
            part_count=len(self.parts),
            sequence=0,
            tags=dict(self.labels),
            pinned=self.pinned,
            rollback_of=id_text(self.rollback_of) if self.rollback_of else None,
            signer=self.maker.hex(),
            foreign=foreign,
        )


_decoder = msgspec.msgpack.Decoder(Waybill)


def encode_waybill(waybill: Waybill) -> bytes:
    return msgspec.msgpack.encode(waybill)


def decode_waybill(data: bytes) -> Waybill:
    """Read a waybill and check all that can be checked of it alone; raises Corrupt."""
    try:
        waybill = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"a checkpoint's description cannot be read: {error}", hint=HINT) from None
    check_waybill(waybill)
    return waybill


def check_waybill(waybill: Waybill) -> None:
    """Raise Corrupt unless it makes sense and is what its digest says."""
    lengths = [len(one) for one in (waybill.id, *waybill.origins)]
    try:
        if any(length != _CHECKPOINT_ID for length in lengths):
            raise BadInput("an id has the wrong length")
        if len(waybill.maker) != len(UNSIGNED) or len(waybill.proof) not in (0, 32):
            raise BadInput("its maker's key or proof has the wrong length")
        Subject.parse(waybill.subject)
        moment.from_micros(waybill.time)
        names = [part.name for part in waybill.parts]
        if names != sorted(set(names)):
            raise BadInput("its parts are not in order, or one comes twice")
        for part in waybill.parts:
            _check_part(part)
        if digest(waybill, waybill.parts) != waybill.digest:
            raise BadInput("it does not match its digest")
    except BadInput as error:
        who = waybill.id.hex()[:32]
        raise Corrupt(f"checkpoint {who}: {error}", hint=HINT) from None


def _check_part(part: PartRecord) -> None:
    """Raise BadInput for a part that no store would have written."""
    check_part_name(part.name)
    structure = part.split == "structure"
    blocks = -(-(part.size + part.skew) // BLOCK)
    leaves = -(-blocks // LEAF_BLOCKS)
    good = (
        0 <= part.size < _MAX_SIZE
        and 0 <= part.skew < (PAGE if part.paged else 1)
        and len(part.root) == ID_SIZE
        and not part.volumes
        and not (structure and (part.inline or part.map))
        and (part.inline or not len(part.map) % ID_SIZE)
        and not (part.paged and leaves != (1 if part.inline else len(part.map) // ID_SIZE))
    )
    if not good:
        raise BadInput(f"its part {part.name!r} makes no sense")


def waybill_of(ledger: Ledger, record: Record) -> Waybill:
    """What travels of a checkpoint in this store."""
    commit = record.commit
    maker = commit.maker or record.frame.key_id
    return Waybill(
        id=commit.id,
        subject=commit.subject,
        parents=commit.parents,
        reason=commit.reason,
        stage=commit.stage,
        time=commit.time,
        tags=commit.tags,
        rollback_of=commit.rollback_of,
        digest=commit.digest,
        parts=tuple(
            msgspec.structs.replace(part, volumes=()) for part in ledger.part_records(record)
        ),
        maker=maker,
        # Commits that are older than proofs get one here, where we have the key.
        proof=commit.proof or ledger.keyring.prove(commit.digest, maker),
        labels=dict(record.tags),
        pinned=record.pinned,
    )
