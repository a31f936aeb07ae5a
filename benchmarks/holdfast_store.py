"""One step of Holdfast in a process of its own, as the peers have it: `save`, `restore` or `map`.
And what no save can do without: `read`, and `hash`.

The last line of output is what the library itself took, without starting the interpreter.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from holdfast.store import Store, open_store
from holdfast.store.arrays import np
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import chunk_id
from holdfast.store.parts.blocks import BLOCK
from holdfast.store.parts.sources import Fetch, windows

_WINDOWS = 8  # in a task, as in a save


def save(store: Store, folder: Path) -> None:
    head = store.head("sandbox/bench")
    first = store.list("sandbox/bench")[-1] if head else None
    with store.draft("sandbox/bench", parent=first, reason=folder.name) as draft:
        for path in sorted(folder.iterdir()):
            draft.put(f"memory/{path.name}", path, split="pages")
        draft.commit()


def restore(store: Store, folder: Path, reason: str) -> None:
    found = next(one for one in store.list("sandbox/bench") if one.reason == reason)
    folder.mkdir()
    for part in store.show(found).parts:
        fd = os.open(folder / Path(part.name).name, os.O_RDWR | os.O_CREAT)
        store.copy_part(found, part.name, fd)
        os.close(fd)


def look(folder: Path, hashing: bool) -> None:
    """Read every byte, and hash it, by as many threads as a save has, and do nothing else."""

    def task(fetches: list[Fetch]) -> None:
        for fetch in fetches:
            data = fetch(True)
            for at in range(0, len(data) if hashing else 0, BLOCK):
                chunk_id(data[at : at + BLOCK])

    for path in sorted(folder.iterdir()):
        found = [*windows(path)]
        tasks = [found[at : at + _WINDOWS] for at in range(0, len(found), _WINDOWS)]
        for _ in workers.in_order(task, tasks, 2 * workers.count()):
            pass


def save_array(store: Store, size: int) -> None:
    array = np.random.default_rng(2).integers(0, 2**63, size // 8, dtype=np.int64)
    with store.draft("session/array") as draft:
        draft.put("buffers/0", array, split="segment", skew=16)
        draft.commit()


def map_array(store: Store) -> None:
    mapping = store.map("session/array", "buffers/0")
    array = np.frombuffer(mapping.view, dtype=np.int64)
    assert array[len(array) // 2] != 0


def main() -> None:
    verb, place, *rest = sys.argv[1:]
    _ = np.ndarray  # loaded, as the store loads it: a program that saves again and again has it
    start = time.perf_counter()
    if verb in ("read", "hash"):
        look(Path(place), hashing=verb == "hash")
        print(json.dumps({"wall": time.perf_counter() - start}), flush=True)
        return
    store = open_store(place)
    if verb == "save":
        save(store, Path(rest[0]))
    elif verb == "restore":
        restore(store, Path(rest[0]), rest[1])
    elif verb == "save-array":
        save_array(store, int(rest[0]))
    else:
        map_array(store)
    print(json.dumps({"wall": time.perf_counter() - start}), flush=True)
    os._exit(0)  # the background verification of a mapping is not what is measured


if __name__ == "__main__":
    main()
