"""Notebooks as people write them: the cells that the notebook benchmark and the tests run.

Each is a text in this folder. A line `# %%` begins a cell; the last cell is an expression of plain
data which says what came of it all. Cells that are run again after a kill give the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
_MARK = "# %%\n"


@dataclass(frozen=True)
class Notebook:
    """Some cells, the last of which tells the result."""

    name: str
    what: str
    cells: tuple[str, ...]


def read(name: str) -> Notebook:
    """One of them."""
    first, *cells = (_HERE / f"{name}.ipy").read_text().split(_MARK)
    return Notebook(name, first.strip("# \n"), tuple(cell.strip("\n") for cell in cells))


def names() -> list[str]:
    """What there is."""
    return sorted(path.stem for path in _HERE.glob("*.ipy"))
