"""Contents: which chunks a part is made of, for collecting, copying and verifying."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.store.chunks.library import Library
from holdfast.store.parts.pageio import PageReader
from holdfast.store.parts.part import PartRecord, split_ids
from holdfast.store.parts.streams import part_leaves
from holdfast.store.parts.structure import chunk_ids


def part_chunks(library: Library, part: PartRecord) -> Iterator[bytes]:
    """Every chunk that reading this part needs, maps included; a chunk may come twice."""
    if part.split == "structure":
        yield from chunk_ids(part.root, library.get)
        return
    yield from part.leaf_ids()
    if part.split in ("pages", "segment"):
        for table in PageReader(library, part).tables():
            yield from table.ids
    else:
        for leaf in part_leaves(library, part):
            yield from split_ids(leaf.ids)
