"""Notebooks as people write them, killed at any place and resumed: the results are the same."""

from __future__ import annotations

import ast
import os
import random
import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integrations.kernel import DEADLINE, Kernel

from benchmarks import notebooks
from holdfast.store import open_store

WAYS = ("after it is saved", "in the middle", "right after")
CHOSEN = 6  # places in the ordinary tests, which take some 5 seconds each
_KILL = ast.parse("__import__('os').kill(__import__('os').getpid(), 9)").body


class Place(NamedTuple):
    """Where a notebook's kernel is killed."""

    notebook: str
    cell: int
    way: str

    def __str__(self) -> str:
        return f"{self.notebook}, cell {self.cell + 1}, {self.way}"


def places() -> list[Place]:
    """All of them, but for those after the last cell, where nothing is left to be run."""
    return [
        Place(name, cell, way)
        for name in notebooks.names()
        for cell in range(len(notebooks.read(name).cells) - 1)
        for way in WAYS
    ]


def broken_off(cell: str) -> str:
    """The cell with a kill in its middle: inside of a loop, if that is where the middle is."""
    tree = ast.parse(cell)
    at = len(tree.body) // 2
    if isinstance(middle := tree.body[at], (ast.For, ast.With)):
        middle.body += _KILL
    else:
        tree.body[at:at] = _KILL
    return ast.unparse(tree)


def last_cell(home: Path) -> int:
    """The number of the last cell that is in a checkpoint; the first one loads the extension."""
    head = open_store(str(home / "store")).head("session/analysis")
    found = re.fullmatch(r"cells? (?:\d+ to )?(\d+)", head.reason) if head else None
    return int(found[1]) if found else 1


@cache
def seed() -> int:
    chosen = int(os.environ.get("HOLDFAST_NOTEBOOK_SEED", "1"))
    print(f"places of kills are chosen with HOLDFAST_NOTEBOOK_SEED={chosen}")
    return chosen


def some_places() -> list[Place]:
    """One of each way twice, of different notebooks."""
    chooser = random.Random(seed())
    names = chooser.sample(notebooks.names(), CHOSEN)
    ways = [way for way in WAYS for _ in range(CHOSEN // len(WAYS))]
    return [
        chooser.choice([place for place in places() if (place.notebook, place.way) == each])
        for each in zip(names, ways, strict=True)
    ]


@pytest.fixture
def kernels() -> Iterator[list[Kernel]]:
    started: list[Kernel] = []
    yield started
    for kernel in started:
        kernel.close()


_whole: dict[str, list[str]] = {}


def expected(name: str, kernels: list[Kernel], folder: Path) -> list[str]:
    """What each cell shows when nothing is killed, without the extension."""
    if name not in _whole:
        folder.mkdir()
        kernel = Kernel(folder)
        kernels.append(kernel)
        _whole[name] = [kernel.show(cell) for cell in notebooks.read(name).cells]
        kernel.close()
    return _whole[name]


def check(place: Place, kernels: list[Kernel], folder: Path) -> None:
    """Kill a notebook there, resume it, run what is lost and what is left, and compare."""
    cells = notebooks.read(place.notebook).cells
    shown = expected(place.notebook, kernels, folder / "whole")
    home = folder / "killed"
    home.mkdir()

    def start() -> Kernel:
        kernels.append(Kernel(home, HOLDFAST_SESSION="analysis"))
        kernels[-1].run("%load_ext holdfast")
        return kernels[-1]

    kernel = start()
    whole = place.cell + (place.way != "in the middle")
    for number, cell in enumerate(cells[:whole]):
        assert kernel.show(cell) == shown[number], place
    match place.way:
        case "after it is saved":
            end = time.monotonic() + DEADLINE
            while last_cell(home) < place.cell + 2:
                assert time.monotonic() < end, place
                time.sleep(0.05)
            kernel.kill()
        case "in the middle":
            kernel.run_until_it_dies(broken_off(cells[place.cell]))
            kernel.close()
        case _:
            kernel.kill()

    done = last_cell(home) - 1
    assert done <= whole
    kernel = start()
    said = kernel.said
    for number in range(done, len(cells)):
        assert kernel.show(cells[number]) == shown[number], f"{place}: cell {number + 1}; {said}"
    kernel.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(CHOSEN))
def test_some_killed_notebooks_go_on(number: int, kernels: list[Kernel], tmp_path: Path) -> None:
    place = some_places()[number]
    print(f"{place}; seed {seed()}")
    check(place, kernels, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("place", places(), ids=str)
def test_all_killed_notebooks_go_on(place: Place, kernels: list[Kernel], tmp_path: Path) -> None:
    check(place, kernels, tmp_path)


def test_notebooks_are_long_and_many() -> None:
    assert len(notebooks.names()) >= 10
    for name in notebooks.names():
        assert 12 <= len(notebooks.read(name).cells) <= 15, name
