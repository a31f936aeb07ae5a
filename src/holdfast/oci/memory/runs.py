"""The pages of a dump by their address, wherever in a line of increments they are."""

from __future__ import annotations

import bisect
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from holdfast.model.errors import Corrupt
from holdfast.oci.compression import compressed, expand
from holdfast.oci.memory.pagemap import PAGE, PARENT, Pagemap

_DEEPEST = 32  # a link that leads to itself must end somewhere, and before the kernel says so
_WORDS = PAGE // 8

Pages = NDArray[np.uint64]  # one row a page


@dataclass(frozen=True, slots=True)
class Run:
    """Pages that follow each other in memory and in a file, where the first of them is `at`."""

    page: int
    data: Pages
    file: Path
    at: int

    @property
    def end(self) -> int:
        return self.page + len(self.data)


class Memory:
    """The pages of one map, in the order of their addresses."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs = sorted(runs, key=lambda run: run.page)
        self._starts = [run.page for run in self.runs]

    @classmethod
    def read(cls, folder: Path, name: str, depth: int = 0) -> Memory:
        """The pages that a map in a folder of images stands for; raises Corrupt."""
        if depth > _DEEPEST:
            raise Corrupt("the increments of a dump lead in a circle", where=str(folder))
        pagemap = Pagemap.read(folder / name)
        pages = file_pages(folder / pagemap.pages_name)
        above: Memory | None = None
        runs: list[Run] = []
        at = 0
        for entry in pagemap.entries:
            if entry.present:
                data = pages[at : at + entry.count]
                runs.append(Run(entry.page, data, folder / pagemap.pages_name, at))
                if len(runs[-1].data) != entry.count:
                    raise Corrupt(f"{pagemap.pages_name} is too short", where=str(folder))
                at += entry.count
            elif entry.in_parent:
                above = above or cls.read(folder / PARENT, name, depth + 1)
                found = list(above.within(entry.page, entry.page + entry.count))
                if sum(len(run.data) for run in found) != entry.count:
                    raise Corrupt(f"{name} lacks pages that its increment needs", where=str(folder))
                runs += found
        return cls(runs)

    def within(self, start: int, end: int) -> Iterator[Run]:
        """The runs between two addresses, cut to fit."""
        at = max(0, bisect.bisect_right(self._starts, start) - 1)
        while at < len(self.runs) and self.runs[at].page < end:
            run = self.runs[at]
            first, last = max(start, run.page), min(end, run.end)
            if first < last:
                skip = first - run.page
                yield Run(first, run.data[skip : last - run.page], run.file, run.at + skip)
            at += 1


def file_pages(path: Path) -> Pages:
    """A file of pages, mapped; raises Corrupt when it does not end with a whole one. What is kept
    compressed is expanded into a file without a name, beside it."""
    if not path.exists() and compressed(path).exists():
        with tempfile.TemporaryFile(dir=path.parent) as expanded:
            expand(compressed(path), expanded)
            return _mapped(expanded, path)
    with path.open("rb") as file:
        return _mapped(file, path)


def _mapped(file: BinaryIO, path: Path) -> Pages:
    size = os.fstat(file.fileno()).st_size
    if size % PAGE:
        raise Corrupt(f"{path.name} does not end with a whole page", where=str(path))
    if size == 0:
        return np.empty((0, _WORDS), np.uint64)
    return np.memmap(file, dtype=np.uint64, mode="r").reshape(-1, _WORDS)
