"""The inventory: what was promised on the way in, and what has come. Pure: it stores nothing.

A chunk comes after what names it, so whatever nothing has named is refused when it comes, and
whatever was named and did not come is known at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.model.errors import Corrupt
from holdfast.store.chunks.chunk import ID_SIZE, ZERO_ID
from holdfast.store.chunks.verified import VerifiedChunk
from holdfast.store.log.catalogue import id_text
from holdfast.store.parts.blocks import BLOCK, LEAF_BLOCKS, PageTable, pages_root
from holdfast.store.parts.contents import Named, named_by_chunk, named_by_part, walk
from holdfast.store.parts.part import PartRecord, Pieces, decode_pieces, pieces_root, split_ids
from holdfast.store.transfer.waybill import HINT, Waybill

_MAX_VALUE = 16 * 1024**3  # bytes of a structure with everything it refers to written out


class Inventory:
    """What some checkpoints need, and how much of it is here."""

    def __init__(self) -> None:
        self.waybills: list[Waybill] = []
        self._aligned: set[bytes] = set()
        self._awaited: set[Named] = set()
        self._come: set[Named] = set()
        self._names: dict[Named, list[Named]] = {}
        self._sizes: dict[bytes, int] = {}
        self.leaves: dict[bytes, bytes] = {}

    def announce(self, waybill: Waybill) -> None:
        """A checkpoint will come; raises Corrupt when it comes before what it descends from."""
        known = {one.id for one in self.waybills}
        children = [one.id for one in self.waybills if waybill.id in one.origins]
        if waybill.id in known or waybill.id in waybill.origins or children:
            raise Corrupt(
                f"the lineage of checkpoint {id_text(waybill.id)} goes round in a circle"
                if waybill.id not in known
                else f"checkpoint {id_text(waybill.id)} comes twice",
                hint=HINT,
            )
        self.waybills.append(waybill)
        for part in waybill.parts:
            self._await(named_by_part(part), aligned=part.split == "segment")

    def is_aligned(self, chunk: bytes) -> bool:
        """Whether the chunk belongs where it can be mapped."""
        return chunk in self._aligned

    def arrive(self, chunk: Named, content: VerifiedChunk) -> None:
        """A chunk has come; raises Corrupt when it is not the one it comes for, or nobody's."""
        if chunk not in self._awaited:
            raise Corrupt(f"chunk {chunk.id.hex()[:16]} was not to come", hint=HINT)
        if content.id != chunk.id:
            raise Corrupt(f"chunk {chunk.id.hex()[:16]} is not what its id says", hint=HINT)
        plain = content.plain
        self.have(chunk, len(plain))
        if chunk.kind == "data":
            return
        names = self._names[chunk] = named_by_chunk(chunk.kind, plain)
        if chunk.kind != "node":
            self.leaves[chunk.id] = bytes(plain)
        self._await(names, aligned=chunk.kind == "segment")

    def have(self, chunk: Named, size: int) -> None:
        """Bytes that need not come: they are there."""
        self._awaited.discard(chunk)
        self._come.add(chunk)
        self._sizes[chunk.id] = size

    def names(self, chunk: Named) -> list[Named]:
        """What a chunk that has come names."""
        return self._names[chunk]

    def size(self, chunk: Named) -> int:
        return self._sizes[chunk.id]

    def _await(self, names: list[Named], aligned: bool) -> None:
        for chunk in names:
            if len(chunk.id) != ID_SIZE:
                raise Corrupt("a chunk's id has the wrong length", hint=HINT)
            if aligned and chunk.kind == "data":
                self._aligned.add(chunk.id)
            if chunk not in self._come:
                self._awaited.add(chunk)

    # -- when everything has come

    def check(self) -> None:
        """Raise Corrupt unless all that was named is here, and the parts are what their roots
        say, as far as that can be told without putting blocks together."""
        if self._awaited:
            missing = next(iter(self._awaited))
            raise Corrupt(
                f"{len(self._awaited)} chunks did not come, among them {missing.id.hex()[:16]}",
                hint=HINT,
            )
        weights: dict[bytes, int] = {}
        for waybill in self.waybills:
            for part in waybill.parts:
                try:
                    self._check_part(part, weights)
                except Corrupt as error:
                    where = f"checkpoint {id_text(waybill.id)}, part {part.name!r}"
                    raise Corrupt(f"{where}: {error}", hint=HINT) from None

    def chunks(self, part: PartRecord) -> set[bytes]:
        """Every chunk that a part needs."""
        return {chunk.id for chunk in walk(named_by_part(part), self._names.__getitem__)}

    def mixed_blocks(self, part: PartRecord) -> Iterator[int]:
        """The blocks of a part that are put together from pieces of chunks."""
        if part.paged:
            for leaf, table in enumerate(self._tables(part)):
                for at, wanted in enumerate(table.hashes):
                    if wanted != ZERO_ID and not _is_whole(table, at):
                        yield leaf * LEAF_BLOCKS + at

    def _check_part(self, part: PartRecord, weights: dict[bytes, int]) -> None:
        if part.paged:
            self._check_pages(part)
        elif part.split == "structure":
            self._check_weight(part.root, weights)
        else:
            self._check_pieces(part)

    def _check_pages(self, part: PartRecord) -> None:
        total = part.skew + part.size
        blocks = -(-total // BLOCK)
        tables = self._tables(part)
        for leaf, table in enumerate(tables):
            if len(table) != min(LEAF_BLOCKS, blocks - leaf * LEAF_BLOCKS):
                raise Corrupt("its map has the wrong length")
            for at, wanted in enumerate(table.hashes):
                size = min(BLOCK, total - (leaf * LEAF_BLOCKS + at) * BLOCK)
                if wanted == ZERO_ID and (any(table.extents(at)) or at in table.layers):
                    raise Corrupt("a block of zeros is said to have content")
                if wanted != ZERO_ID and _is_whole(table, at) and self._sizes[wanted] != size:
                    raise Corrupt("a block has the wrong length")
        if pages_root(tables) != part.root:
            raise Corrupt("its map does not match its root")

    def _check_pieces(self, part: PartRecord) -> None:
        pieces = [
            pair
            for leaf in self._pieces(part)
            for pair in zip(split_ids(leaf.ids), leaf.lengths, strict=True)
        ]
        if sum(length for _, length in pieces) != part.size:
            raise Corrupt("its map has the wrong length")
        if any(self._sizes[chunk] != length for chunk, length in pieces):
            raise Corrupt("a piece has the wrong length")
        if pieces_root(pieces) != part.root:
            raise Corrupt("its map does not match its root")

    def _check_weight(self, root: bytes, weights: dict[bytes, int]) -> None:
        """A few nodes that name each other many times over can stand for more bytes than any
        memory has; whoever read such a value would not come back."""
        pending = [root]
        while pending:
            node = pending[-1]
            named = self._names[Named("node", node)]
            unknown = [c.id for c in named if c.kind == "node" and c.id not in weights]
            if unknown:
                pending += unknown
                continue
            pending.pop()
            weights[node] = self._sizes[node] + sum(
                weights[c.id] if c.kind == "node" else self._sizes[c.id] for c in named
            )
            if weights[node] > _MAX_VALUE:
                raise Corrupt(f"its value would have more than {_MAX_VALUE} bytes")

    def _tables(self, part: PartRecord) -> list[PageTable]:
        if part.inline:
            return [PageTable.decode(part.map)]
        return [PageTable.decode(self.leaves[leaf]) for leaf in part.leaf_ids()]

    def _pieces(self, part: PartRecord) -> list[Pieces]:
        if part.inline:
            return [decode_pieces(part.map)]
        return [decode_pieces(self.leaves[leaf]) for leaf in part.leaf_ids()]


def _is_whole(table: PageTable, block: int) -> bool:
    """Whether a block is one chunk from its beginning to its end; then the chunk's id says all."""
    extents = list(table.extents(block))
    return (
        len(extents) == 1
        and block not in table.layers
        and extents[0].chunk == table.hashes[block]
        and extents[0].page == 0
        and extents[0].at == 0
    )
