"""The receiver: takes checkpoints from elsewhere into a store.

Nothing is committed before everything that was announced has come and was found right. Then each is
one entry, parents first: who is killed in between leaves whole checkpoints and no head moved, and
doing it again brings the rest. Who made a checkpoint stays written in it: bringing it here does not
make it ours.
"""

from __future__ import annotations

from types import TracebackType

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Conflict, Corrupt
from holdfast.store.chunks.chunk import Buffer, chunk_id
from holdfast.store.chunks.library import Library
from holdfast.store.chunks.sink import Sink
from holdfast.store.chunks.verified import VerifiedChunk
from holdfast.store.composition import Composition, Piece, Provenance
from holdfast.store.keys import Keyring
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue, id_text
from holdfast.store.log.entries import Commit, Entry, Move
from holdfast.store.parts.contents import Named
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.transfer.inventory import Inventory
from holdfast.store.transfer.waybill import HINT, Waybill


class Receiver:
    """Takes some checkpoints in. As a context manager: leaving without `commit` discards them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._inventory = Inventory()
        self._composition = Composition(ledger)
        self._sink = self._composition.sink

    def __enter__(self) -> Receiver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._composition.discard()

    def announce(self, waybill: Waybill) -> None:
        """A checkpoint will come; raises Conflict or Corrupt when it cannot be taken in."""
        is_here(self._ledger.catalogue, waybill)
        check_proof(self._ledger.keyring, waybill)
        self._inventory.announce(waybill)

    def has(self, chunk: Named) -> bool:
        """Whether a chunk need not come, because the store has it; then it counts as come."""
        library = self._ledger.library
        size = library.size(chunk.id)
        aligned = self._inventory.is_aligned(chunk.id)
        if size is None or not self._sink.refer_existing(chunk.id, aligned=aligned):
            return False
        if chunk.kind == "data":
            self._inventory.have(chunk, size)
            return True
        try:
            self._inventory.arrive(chunk, library.verified(chunk.id))
        except Corrupt:
            return False  # damaged here: let it come
        return True

    def names(self, chunk: Named) -> list[Named]:
        """What a chunk that has come names."""
        return self._inventory.names(chunk)

    def size(self, chunk: Named) -> int:
        """How many bytes a chunk has that has come."""
        return self._inventory.size(chunk)

    def take(self, chunk: Named, content: VerifiedChunk) -> None:
        """A chunk has come."""
        self._inventory.arrive(chunk, content)
        self._sink.put_verified(content, aligned=self._inventory.is_aligned(chunk.id))

    def commit(self, *, trust: bool, heads: bool = True) -> list[Checkpoint]:
        """Take in what was announced; gives those that were not here before, in order. With
        `heads`, a subject that has none gets one."""
        inventory = self._inventory
        inventory.check()
        if len(inventory.waybills) > 1:
            self._sink.spill()
        self._check_blocks()
        new = [one for one in inventory.waybills if self._commit(one, trust)]
        for subject in dict.fromkeys(one.subject for one in inventory.waybills if heads):
            self._give_head(subject)
        now = self._ledger.catalogue
        return [now.record(one.id).checkpoint() for one in new]

    def _check_blocks(self) -> None:
        """Put blocks together that are made of pieces of chunks, and compare their hashes."""
        mixed = {
            part: blocks
            for waybill in self._inventory.waybills
            for part in waybill.parts
            if (blocks := list(self._inventory.mixed_blocks(part)))
        }
        if not mixed:
            return
        self._sink.finish()
        library = _Arrivals(self._ledger.library, self._sink, self._inventory.leaves)
        for part, blocks in mixed.items():
            reader = PageReader(library, part)
            for block in blocks:
                data = reader.assemble(block)[: reader.block_size(block)]
                if chunk_id(data.data) != reader.hash(block):
                    raise Corrupt(
                        f"block {block} of part {part.name!r} is not what its map says", hint=HINT
                    )

    def _commit(self, waybill: Waybill, trust: bool) -> bool:
        """Append one checkpoint with its labels, in one entry; False when it is here already."""
        pieces = [Piece(part, self._inventory.chunks(part)) for part in waybill.parts]
        provenance = Provenance(
            maker=waybill.maker,
            proof=waybill.proof,
            trusted=trust,
            labels=waybill.labels if waybill.labels != waybill.tags else None,
            pinned=waybill.pinned,
        )

        def build(now: Catalogue) -> tuple[Commit, Buffer]:
            if is_here(now, waybill):
                raise _HereError
            _check_lineage(now, waybill)
            return self._composition.compose(now, waybill, pieces, "import", provenance=provenance)

        try:
            self._composition.commit(build)
        except _HereError:
            return False
        return True

    def _give_head(self, subject: str) -> None:
        """Let a subject that has no head begin at its last checkpoint that has come."""
        last = next(o for o in reversed(self._inventory.waybills) if o.subject == subject)

        def build(now: Catalogue) -> tuple[Entry, bytes]:
            # An owner that has not committed yet will say itself where it begins.
            if now.head(subject) is not None or subject in now.owners:
                raise _HereError
            return Move(
                subject=subject,
                before=now.heads.get(subject),
                after=last.id,
                verb="import",
                time=now.next_time(moment.now()),
            ), b""

        try:
            self._ledger.append(build)
        except _HereError:
            return


class _HereError(Exception):
    """Somebody else has done it meanwhile."""


class _Arrivals(Library):
    """The chunks of a store, and those that have come and are not committed yet."""

    def __init__(self, store: Library, sink: Sink, leaves: dict[bytes, bytes]) -> None:
        super().__init__(store.backend, store.cipher)
        self._store = store
        self._sink = sink
        self._leaves = leaves

    def get(self, chunk: bytes) -> Buffer:
        found: Buffer | None = self._leaves.get(chunk) or self._sink.read(chunk)
        if found is None:
            return self._store.get(chunk)
        if chunk_id(found) != chunk:
            raise Corrupt(f"chunk {chunk.hex()[:16]} was damaged while it was written")
        return found


def check_proof(keyring: Keyring, waybill: Waybill) -> None:
    """Raise Corrupt when a checkpoint says that a key made it which is known, and did not."""
    proof = waybill.proof
    if (
        proof
        and keyring.knows(waybill.maker)
        and not keyring.accepts_proof(waybill.maker, proof, waybill.digest)
    ):
        raise Corrupt(
            f"checkpoint {id_text(waybill.id)} claims to be made with key"
            f" {waybill.maker.hex()}, and is not",
            hint=HINT,
        )


def is_here(now: Catalogue, waybill: Waybill) -> bool:
    """Whether the store has the checkpoint; raises Conflict when it has another of that id."""
    found = now.records.get(waybill.id)
    if found is not None and found.commit.digest != waybill.digest:
        raise Conflict(
            f"there is another checkpoint {id_text(waybill.id)} here, with other content",
            hint="one of the two was tampered with; look at both with `holdfast show`",
        )
    return found is not None


def _check_lineage(now: Catalogue, waybill: Waybill) -> None:
    """Raise Corrupt when the checkpoint would become its own ancestor."""
    pending, seen = list(waybill.origins), set(waybill.origins)
    while pending:
        one = pending.pop()
        if one == waybill.id:
            raise Corrupt(
                f"checkpoint {id_text(one)} would become its own ancestor",
                hint="one of those that name each other as parents is forged",
            )
        record = now.records.get(one)
        if record is not None:
            commit = record.commit
            rolled = () if commit.rollback_of is None else (commit.rollback_of,)
            more = {*commit.parents, *rolled} - seen
            seen |= more
            pending += more
