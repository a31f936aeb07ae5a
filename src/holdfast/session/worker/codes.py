"""Code objects as places in source: any Python version can compile them again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

from holdfast.session.worker.cells import CellLog

_COMPREHENSION = re.compile(r"<(?:list|set|dict)comp>\.(?:<locals>\.)?")


class Place(NamedTuple):
    """Where a code object stands: a block of a cell, and its name and line in there."""

    cell: int
    first: int
    last: int
    qualname: str
    line: int
    nth: int


class CodeIndex:
    """Finds a code object's place, and a place's code object."""

    # Bytecode is not compared: CPython 3.11 compiles `math.floor(x)` in two ways, depending on
    # whether `import math` stands in the same cell.

    def __init__(self, cells: CellLog) -> None:
        self._cells = cells
        self._compiled: dict[tuple[int, int], dict[tuple[str, int], list[CodeType]]] = {}
        # The code is kept with its place, so that its address cannot come to mean another one.
        self._places: dict[int, tuple[CodeType, Place | None]] = {}

    def clear(self) -> None:
        """Forget what is compiled: the cells are others now."""
        self._compiled.clear()
        self._places.clear()

    def locate(self, code: CodeType) -> Place | None:
        """Where this code stands, if compiling that source gives the same code again."""
        known = self._places.get(id(code))
        if known is None:
            known = self._places[id(code)] = (code, self._search(code))
        return known[1]

    def find(self, place: Place) -> CodeType:
        """The code at a place; raises LookupError."""
        table = self._table(place.cell, place.first, place.last)
        try:
            return table[place.qualname, place.line][place.nth]
        except (KeyError, IndexError):
            raise LookupError(
                f"no {place.qualname} in line {place.line} of cell {place.cell}"
            ) from None

    def _search(self, code: CodeType) -> Place | None:
        number = self._cells.number_of(code.co_filename)
        block = None if number is None else self._cells.block_of(number, code.co_firstlineno)
        if number is None or not block:
            return None
        key = _key(code)
        for index, found in enumerate(self._table(number, *block).get(key, [])):
            if _shape(found) == _shape(code):
                return Place(number, *block, *key, index)
        return None

    def _table(self, number: int, first: int, last: int) -> dict[tuple[str, int], list[CodeType]]:
        table = self._compiled.get((number, first))
        if table is None:
            cell = self._cells.get(number)
            if cell is None:
                raise LookupError(f"cell {number} is not kept")
            flags = cell.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            text = self._cells.lines(number, first, last)
            top = compile(text, cell.filename, "exec", flags, dont_inherit=True)
            table = self._compiled[number, first] = {}
            for code in nested(top):
                table.setdefault(_key(code), []).append(code)
        return table


def nested(code: CodeType) -> Iterator[CodeType]:
    """Every code object inside this one, depth first."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from nested(constant)


def _key(code: CodeType) -> tuple[str, int]:
    """Name and line. Python 3.12 and later have no code objects for most comprehensions."""
    return _COMPREHENSION.sub("", code.co_qualname), code.co_firstlineno


def _shape(code: CodeType) -> tuple[object, ...]:
    """What two compilations of the same text agree on, and different texts do not."""
    spots = [spot for spot in code.co_positions() if None not in spot]
    lines, ends, columns, last = zip(*spots, strict=True) if spots else ((), (), (), ())
    return (
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
        (code.co_varnames, code.co_freevars, code.co_cellvars, code.co_names),
        [repr(value) for value in code.co_consts if not isinstance(value, CodeType)],
        [
            f(span, default=0)
            for f, span in ((min, lines), (max, ends), (min, columns), (max, last))
        ],
    )
