"""What a machine can do at most: the rows that no tool can beat."""

from __future__ import annotations

import gc
import io
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Limits:
    """What this machine can do at most, measured in the same run."""

    copying: float  # bytes a second, in memory
    writing: float  # bytes a second, to a file with a sync at the end
    sync: float  # ms for 4 KiB
    filling: float  # bytes a second, from a file that is in memory into memory that is new
    texts: float  # a second, made from a pickle
    # ms until a fresh process has answered that imports these, maps a file, and does nothing else
    answers: dict[str, float]

    def __str__(self) -> str:
        return (
            f"Here memory is copied at {self.copying / 1e9:.1f} GB/s, a file written and synced at"
            f" {self.writing / 1e9:.1f} GB/s, and 4 KiB in {self.sync:.1f} ms. New memory is filled"
            f" at {self.filling / 1e9:.1f} GB/s, and {self.texts / 1e6:.0f} million texts are made"
            " in a second."
        )


def measure(scratch: Path, libraries: Iterable[str]) -> Limits:
    """Try it, with a gigabyte in `scratch`, and with sets of libraries to import."""
    import numpy as np

    source, target = np.ones(1 << 27), np.zeros(1 << 27)
    copying = min(_timed(lambda: np.copyto(target, source)) for _ in range(3))
    path = scratch / "limit"

    def write(data: memoryview) -> None:
        with path.open("wb", buffering=0) as file:
            while data:
                data = data[file.write(data) :]
            os.fsync(file.fileno())

    syncs = [_timed(lambda: write(memoryview(bytes(4096)))) for _ in range(20)]
    # The best of three: memory of the file cache that this machine has to be lent by another first
    # takes several times as long as the disk.
    writing = min(
        _timed(lambda: write(memoryview(source).cast("B")))  # type: ignore[arg-type]
        for _ in range(3)
    )
    filling = min(_timed(lambda: _fill(path, source)) for _ in range(3))
    answers = {
        names: statistics.median(answered(path, names) for _ in range(9)) for names in libraries
    }
    path.unlink()
    return Limits(
        copying=source.nbytes / copying,
        writing=source.nbytes / writing,
        sync=statistics.median(syncs) * 1e3,
        filling=source.nbytes / filling,
        texts=_texts(),
        answers=answers,
    )


def _fill(path: Path, like: Any) -> None:
    """Read a file into a new array, which numpy lays on huge pages."""
    import numpy as np

    with path.open("rb", buffering=0) as file:
        view = memoryview(np.empty_like(like)).cast("B")  # type: ignore[arg-type]
        while view:
            view = view[file.readinto(view) or len(view) :]


def _texts(count: int = 600_000) -> float:
    """How many of them a second come out of a pickle that remembers none, as is quickest."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 5)
    pickler.fast = True
    pickler.dump([f"user_1_{i}" for i in range(count)])
    data = file.getvalue()
    gc.disable()
    try:
        return count / min(_timed(lambda: pickle.loads(data)) for _ in range(3))
    finally:
        gc.enable()


_BARE = (
    "import mmap, sys\n"
    "{imports}\n"
    "file = open(sys.argv[1], 'rb')\n"
    "seen = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)\n"
    "print(seen[len(seen) // 2], flush=True)\n"
    "sys.stdin.read()"
)


def answered(path: Path, libraries: str) -> float:
    """Milliseconds until a new process has imported them, mapped a file, and answered: what a
    restore into a process of its own cannot be without, whoever does it. Its end is not waited for,
    and its threads of OpenBLAS rest, as those of a worker do."""
    code = _BARE.format(imports=f"import {libraries}" if libraries else "")
    environment = {"OPENBLAS_THREAD_TIMEOUT": "20", **os.environ}
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
    ) as bare:  # fmt: skip
        assert bare.stdout is not None
        said = bare.stdout.readline()
        took = (time.perf_counter() - start) * 1e3
    if bare.returncode or not said.strip().isdigit():
        raise RuntimeError(f"a bare process did not answer: {said!r}, code {bare.returncode}")
    return took


def _timed(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
