"""Dumps in a store: pages by their slots, so that what did not change is found where it was.

Beside the other files of a dump there is, for each of its maps, a part `slots/<n>` with the pages
and a part `slots/<n>.table` that says which page is where; CRIU's own files of pages are left out
and made again when the dump is fetched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holdfast.model.checkpoint import Split
from holdfast.oci.memory import slots
from holdfast.oci.memory.pagemap import Pagemap, pagemaps
from holdfast.oci.memory.runs import file_pages

if TYPE_CHECKING:
    from holdfast.store.draft import Draft

SLOTS, TABLE = "slots/", ".table"
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
Before = Callable[[str], bytes | None]  # a part of the last checkpoint, if it had it


def put(
    draft: Draft, folder: Path, prefix: str, before: Before, split: Split = "pages"
) -> set[str]:
    """Put the pages of a dump under a prefix; the names of its files that are in by that."""
    done = set()
    for name in pagemaps(folder):
        pagemap = Pagemap.read(folder / name)
        path = folder / pagemap.pages_name
        part = f"{prefix}{SLOTS}{_stem(name)}"
        told = before(part + TABLE)
        table, order = slots.of_map(pagemap, slots.empty() if told is None else slots.decode(told))
        pages = file_pages(path)
        as_it_is = len(order) == len(pages) and np.array_equal(order, np.arange(len(order)))
        draft.put(part, path if as_it_is else slots.rearranged(pages, order), split=split)
        draft.put(part + TABLE, slots.encode(table))
        done.add(pagemap.pages_name)
    return done


def arrange(folder: Path) -> None:
    """Give the pages that were fetched by slots the order in which CRIU wants them."""
    for name in pagemaps(folder):
        arranged = folder / (SLOTS + _stem(name))
        table = arranged.with_name(arranged.name + TABLE)
        if not arranged.exists():
            continue  # a checkpoint from before there were slots
        pagemap = Pagemap.read(folder / name)
        order = slots.of_table(pagemap, slots.decode(table.read_bytes()))
        pages = file_pages(arranged)
        place = folder / pagemap.pages_name
        if len(order) == len(pages) and np.array_equal(order, np.arange(len(order))):
            arranged.rename(place)
        else:
            fd = os.open(place, NEW, 0o600)
            with os.fdopen(fd, "wb") as out:
                for data in slots.rearranged(pages, order):
                    out.write(data)
            arranged.unlink()
        table.unlink()
    if (folder / SLOTS).is_dir():
        (folder / SLOTS).rmdir()


def _stem(name: str) -> str:
    """`pagemap-12.img` is `12`; `pagemap-shmem-3.img` is `shmem-3`."""
    return name.removeprefix("pagemap-").removesuffix(".img")
