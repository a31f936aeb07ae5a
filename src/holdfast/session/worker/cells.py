"""Cells that ran: their text, for tracebacks and for rebuilding code from source."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable

from holdfast.session import layout


class CellLog:
    """Every cell's source by its file name, shared with `linecache`."""

    def __init__(self) -> None:
        self._cells: dict[int, layout.Cell] = {}
        self._numbers: dict[str, int] = {}
        self._blocks: dict[int, list[tuple[int, int]]] = {}

    def add(
        self, number: int, text: str, flags: int = 0, filename: str | None = None
    ) -> layout.Cell:
        """Remember a cell that is about to run, under the name that its code will have."""
        filename = filename or f"<cell {number}>"
        cell = layout.Cell(number=number, filename=filename, text=text, flags=flags)
        self._put(cell)
        return cell

    def replace(self, cells: Iterable[layout.Cell]) -> None:
        """Forget all cells and take these, as a restore does."""
        for filename in self._numbers:
            linecache.cache.pop(filename, None)
        self._cells.clear()
        self._numbers.clear()
        self._blocks.clear()
        for cell in cells:
            self._put(cell)

    def all(self) -> tuple[layout.Cell, ...]:
        """Every cell that is known now."""
        return tuple(self._cells.values())

    def get(self, number: int) -> layout.Cell | None:
        return self._cells.get(number)

    def number_of(self, filename: str) -> int | None:
        """The cell that a code object's file name means, if it is one."""
        return self._numbers.get(filename)

    def lines(self, number: int, first: int, last: int) -> str:
        """Those lines (counted from 1) with blank lines before them, so that numbers stay right."""
        lines = self._cells[number].text.split("\n")
        return "\n" * (first - 1) + "\n".join(lines[first - 1 : last]) + "\n"

    def block_of(self, number: int, line: int) -> tuple[int, int] | None:
        """The lines of the top-level statements that share this line."""
        blocks = self._blocks.get(number)
        if blocks is None:
            blocks = self._blocks[number] = _blocks(self._cells[number])
        return next(((a, b) for a, b in blocks if a <= line <= b), None)

    def _put(self, cell: layout.Cell) -> None:
        self._cells[cell.number] = cell
        self._numbers[cell.filename] = cell.number
        self._blocks.pop(cell.number, None)
        lines = [line + "\n" for line in cell.text.split("\n")]
        # No time stamp: `linecache.checkcache` then never looks for a file.
        linecache.cache[cell.filename] = (len(cell.text), None, lines, cell.filename)


def dedented(text: str) -> str:
    """A cell without the indentation that all its lines share, as pasted code often has it.

    Such a cell is no valid Python as it stands, so nothing that ran before runs differently.
    """
    lines = text.split("\n")
    margins = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip()]
    margin = min(margins, key=len, default="")
    while not all(each.startswith(margin) for each in margins):
        margin = margin[:-1]  # tabs and spaces may be mixed
    return "\n".join(line.removeprefix(margin) for line in lines) if margin else text


def first_line(node: ast.stmt) -> int:
    """Where a statement starts, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _blocks(cell: layout.Cell) -> list[tuple[int, int]]:
    blocks: list[tuple[int, int]] = []
    for node in ast.parse(cell.text, cell.filename).body:
        first, last = first_line(node), node.end_lineno or node.lineno
        if blocks and first <= blocks[-1][1]:
            blocks[-1] = (blocks[-1][0], max(last, blocks[-1][1]))
        else:
            blocks.append((first, last))
    return blocks
