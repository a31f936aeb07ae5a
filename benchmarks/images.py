"""Data like the memory images of a process: heap, code, numbers and zeros, in runs like mappings.

`img1` has 981 MiB, a little more or less with the interpreter whose heap it is (1029 MB, as tables
count them); `img2` is the same with 1% changed in runs of 64 KB, `img3` with 1% of its pages
changed, scattered. Fixed seeds give the layout; heap and libraries are this machine's.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MIB = 1 << 20
PAGE = 4096
_FILE_SIZE = 128 * MIB

_HEAP_OWNER = """
import json, random, time
random.seed(3)
people = {
    f"user-{i}": {
        "id": i,
        "name": "n%d" % (i * 7919 % 1000003),
        "score": random.random(),
        "tags": [str(random.randint(0, 999)) for _ in range(4)],
        "hist": tuple(random.randint(0, 10**6) for _ in range(6)),
    }
    for i in range(170000)
}
lines = [json.dumps(value) for value in people.values()]
print("ready", flush=True)
time.sleep(600)
"""


def make(folder: Path) -> None:
    """Fill `folder` with img1, img2 and img3, unless they are there."""
    if (folder / "complete").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    _write_first(folder / "img1")
    _write_changed(folder, "img2", run=16)
    _write_changed(folder, "img3", run=1)
    (folder / "complete").touch()


def _write_first(target: Path) -> None:
    target.mkdir(parents=True)
    contents = dict(_contents())
    order: list[tuple[str, int, int]] = []
    dice = random.Random(5)
    for name, data in contents.items():
        at = 0
        while at < len(data):
            size = min(len(data) - at, PAGE * dice.choice([16, 32, 64, 128, 256, 1024]))
            order.append((name, at, size))
            at += size
    dice.shuffle(order)
    number = 0
    out = None
    for name, at, size in order:
        if out is None or out.tell() >= _FILE_SIZE:
            if out is not None:
                out.close()
            number += 1
            out = open(target / f"pages-{number}.img", "wb")  # noqa: SIM115
        out.write(contents[name][at : at + size])
    if out is not None:
        out.close()
    for i in range(40):
        (target / f"core-{i}.json").write_text(json.dumps({"fd": i, "x": list(range(200))}))


def _contents() -> Iterator[tuple[str, bytes]]:
    numbers = np.random.default_rng(1)
    yield "heap", _heap()[: 256 * MIB]
    yield "code", _libraries(192 * MIB)
    yield "weights", numbers.standard_normal(32 * MIB, dtype=np.float32).tobytes()
    yield "series", (np.cumsum(numbers.standard_normal(8 * MIB)) * 0.01).tobytes()
    yield "integers", numbers.integers(0, 5000, 8 * MIB, dtype=np.int64).tobytes()
    yield "zeros", bytes(320 * MIB)


def _heap() -> bytes:
    """The anonymous memory of a live interpreter that holds many small objects."""
    owner = subprocess.Popen([sys.executable, "-c", _HEAP_OWNER], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    owner.stdout.readline()
    found = bytearray()
    try:
        with open(f"/proc/{owner.pid}/mem", "rb") as memory:
            for line in Path(f"/proc/{owner.pid}/maps").read_text().splitlines():
                fields = line.split()
                anonymous = len(fields) < 6 or fields[5] == "[heap]"
                if fields[1].startswith("rw") and anonymous:
                    start, end = (int(part, 16) for part in fields[0].split("-"))
                    memory.seek(start)
                    found += memory.read(end - start)
    finally:
        owner.kill()
        owner.wait()
    return bytes(found)


def _libraries(limit: int) -> bytes:
    places = [Path("/usr/lib/x86_64-linux-gnu"), Path(np.__file__).parent]
    found = bytearray()
    for place in places:
        for path in sorted(place.rglob("*.so*") if place == places[1] else place.glob("*.so*")):
            if path.is_symlink() or not path.is_file():
                continue
            data = path.read_bytes()
            found += data + bytes(-len(data) % PAGE)
            if len(found) >= limit:
                return bytes(found[:limit])
    return bytes(found)


def _write_changed(folder: Path, name: str, run: int) -> None:
    """Copy img1 and overwrite 512 bytes in each page of 1%, in runs of `run` pages."""
    target = folder / name
    shutil.copytree(folder / "img1", target)
    dice = random.Random(7)
    for path in sorted(target.glob("pages-*.img")):
        pages = path.stat().st_size // PAGE
        with open(path, "r+b") as image:
            for page in dice.sample(range(0, pages - run, run), int(pages * 0.01 / run)):
                image.seek(page * PAGE)
                data = bytearray(image.read(run * PAGE))
                for i in range(run):
                    at = i * PAGE + dice.randrange(0, 3500)
                    data[at : at + 512] = dice.randbytes(256) + bytes(256)
                image.seek(page * PAGE)
                image.write(data)


if __name__ == "__main__":
    make(Path(sys.argv[1] if len(sys.argv) > 1 else "images"))
