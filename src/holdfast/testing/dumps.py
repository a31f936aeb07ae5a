"""Dumps as CRIU writes them, made up: for tests of what is done with their pages."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from holdfast.oci.memory.pagemap import PAGE, Entry, Pagemap, pagemaps
from holdfast.oci.memory.runs import Memory

MAGIC = bytes.fromhex("1943565425400856")
Pages = dict[int, int]  # the number of a page, and what it is filled with
Dump = dict[str, Pages]


def write(folder: Path, dump: Dump) -> Path:
    """A dump as CRIU would write it: each map with a file of pages, holes between runs left out."""
    folder.mkdir(parents=True)
    for number, (name, pages) in enumerate(dump.items(), 1):
        entries: list[Entry] = []
        for page in sorted(pages):
            if entries and entries[-1].page + entries[-1].count == page:
                last = entries.pop()
                fields = {**last.fields, 2: last.count + 1}
            else:
                fields = {1: page * PAGE, 2: 1, 4: 6}
            entries.append(Entry.of(fields))
        entries.append(Entry.of({1: (max(pages, default=0) + 10) * PAGE, 2: 3, 4: 2}))  # not dumped
        data = b"".join(filled(pages[page]) for page in sorted(pages))
        (folder / f"pages-{number}.img").write_bytes(data)
        (folder / name).write_bytes(Pagemap(MAGIC, {1: number}, tuple(entries)).encode())
    return folder


def read(folder: Path) -> Dump:
    """The dump that a folder of images stands for."""
    return {
        name: {
            run.page + i: int(page[0])
            for run in Memory.read(folder, name).runs
            for i, page in enumerate(run.data)
        }
        for name in pagemaps(folder)
    }


def filled(filling: int) -> bytes:
    """A page."""
    return filling.to_bytes(8, "little") * 512


def a_dump() -> st.SearchStrategy[Dump]:
    """Maps of processes and of shared memory, which come and go from one dump to the next."""
    pages = st.dictionaries(st.integers(1, 60), st.integers(1, 3), max_size=40)
    names = st.sampled_from(
        ["pagemap-1.img", "pagemap-7.img", "pagemap-shmem-4.img", "pagemap-shmem-5.img"]
    )
    return st.dictionaries(names, pages, min_size=1, max_size=3)
