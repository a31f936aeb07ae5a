"""Contents: which chunks a part is made of, for collecting, copying and verifying.

A chunk is named by a part, or by another chunk of it: by a leaf, or by a structure node. What a
chunk names depends on the kind of thing that it is named as.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from holdfast.store.chunks.chunk import Buffer
from holdfast.store.chunks.library import Library
from holdfast.store.parts.blocks import PageTable
from holdfast.store.parts.part import PartRecord, decode_pieces, split_ids
from holdfast.store.parts.structure import named_by

Kind = Literal["pages", "segment", "pieces", "node", "data"]


class Named(NamedTuple):
    """A chunk, and what it is named as."""

    kind: Kind
    id: bytes


def named_by_part(part: PartRecord) -> list[Named]:
    """What a part names itself; raises Corrupt."""
    if part.split == "structure":
        return [Named("node", part.root)]
    kind: Kind = "pieces"
    if part.split == "pages" or part.split == "segment":
        kind = part.split
    if part.inline:
        return named_by_chunk(kind, part.map)
    return [Named(kind, leaf) for leaf in part.leaf_ids()]


def named_by_chunk(kind: Kind, data: Buffer) -> list[Named]:
    """What a chunk names, in order; raises Corrupt when it is not what it is named as."""
    if kind == "data":
        return []
    if kind == "node":
        nodes, pieces = named_by(data)
        return [Named("node", n) for n in nodes] + [Named("data", p) for p in pieces]
    if kind == "pieces":
        return [Named("data", piece) for piece in split_ids(decode_pieces(bytes(data)).ids)]
    return [Named("data", chunk) for chunk in PageTable.decode(data).ids]


def walk(roots: Iterable[Named], names: Callable[[Named], Iterable[Named]]) -> Iterator[Named]:
    """Some chunks and every chunk below them, once, each after what names it; `names` says what
    one names."""
    seen: set[Named] = set()
    for root in roots:
        pending = [root]
        while pending:
            chunk = pending.pop()
            if chunk not in seen:
                seen.add(chunk)
                yield chunk
                if chunk.kind != "data":
                    pending += [*names(chunk)][::-1]


def part_chunks(library: Library, part: PartRecord) -> Iterator[bytes]:
    """Every chunk that reading this part needs, maps included; a chunk may come twice."""
    roots = named_by_part(part)
    for chunk in walk(roots, lambda found: named_by_chunk(found.kind, library.get(found.id))):
        yield chunk.id
