"""Whether a process that was made again has the memory that was dumped, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from holdfast.oci.memory.pagemap import PAGE, pagemaps
from holdfast.oci.memory.runs import Memory, Pages

_PREFIX, _SUFFIX = "pagemap-", ".img"
_STEP = 1024  # pages that are read at once


def dumped(folder: Path) -> list[int]:
    """The processes whose memory a folder of images has, by their own numbers."""
    stems = [name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in pagemaps(folder)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def differing(folder: Path, number: int, pid: int) -> tuple[int, int]:
    """How many pages of a process are not what its images say, and how many there are. It stands
    still meanwhile; `pid` is its number on this host."""
    memory = Memory.read(folder, f"{_PREFIX}{number}{_SUFFIX}")
    wrong = total = 0
    fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for run in memory.runs:
            for at in range(0, len(run.data), _STEP):
                wanted = run.data[at : at + _STEP]
                total += len(wanted)
                wrong += _differing(fd, run.page + at, wanted)
    finally:
        os.close(fd)
    return wrong, total


def _differing(fd: int, page: int, wanted: Pages) -> int:
    try:
        data = os.pread(fd, len(wanted) * PAGE, page * PAGE)
    except OSError:  # nothing is there
        return len(wanted)
    whole = len(data) // PAGE
    there = np.frombuffer(data[: whole * PAGE], np.uint64).reshape(whole, -1)
    return len(wanted) - whole + int((there != wanted[:whole]).any(axis=1).sum())
