"""The source that a checkpoint keeps: only the lines it needs, without secrets."""

from __future__ import annotations

import functools

import msgspec

from holdfast.model.secrets import USUAL, Rule
from holdfast.session import layout
from holdfast.session.layout import Definition
from holdfast.session.worker.cells import CellLog
from holdfast.session.worker.codes import Place
from holdfast.session.worker.secrets import redact

Redacted = tuple[str, tuple[tuple[int, str], ...]]  # text, and the lines that lost something


@functools.lru_cache(1000)  # the same cells at every capture
def _lines(text: str, ranges: tuple[tuple[int, int], ...]) -> str:
    """A text with every other line blank."""
    needed = {at for first, last in ranges for at in range(first, last + 1)}
    kept = [line if at in needed else "" for at, line in enumerate(text.split("\n"), 1)]
    return "\n".join(kept).rstrip("\n")


def note(names: tuple[str, ...]) -> str:
    """What a report says of source that lost these secrets."""
    if not names:
        return ""
    return f"a literal that looks like a secret was left out of its source: {', '.join(names)}"


class Kept:
    """Collects which lines of which cells are needed."""

    def __init__(self, cells: CellLog, rule: Rule = USUAL) -> None:
        self._cells = cells
        self._rule = rule
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        self._redacted: dict[int, Redacted] = {}

    def place(self, place: Place) -> tuple[str, ...]:
        """Keep a code object's lines; the names of the secrets that they lost."""
        return self._keep(place.cell, place.first, place.last)

    def definition(self, definition: Definition) -> tuple[str, ...]:
        """Keep a definition's lines; the names of the secrets that they lost."""
        # The whole statement around it, so that what is kept of a cell still parses.
        block = self._cells.block_of(definition.cell, definition.first)
        return self._keep(definition.cell, *(block or (definition.first, definition.last)))

    def cells(self) -> tuple[layout.Cell, ...]:
        """The needed cells, every other line blank."""
        found: list[layout.Cell] = []
        for number, ranges in sorted(self._ranges.items()):
            cell = self._cells.get(number)
            if cell is None:
                continue
            text = _lines(self._text(number)[0], tuple(ranges))
            found.append(msgspec.structs.replace(cell, text=text))
        return tuple(found)

    def left_out(self) -> tuple[str, ...]:
        """The names of all secrets that the kept lines lost."""
        found = [
            name
            for number, ranges in sorted(self._ranges.items())
            for line, name in self._text(number)[1]
            if any(first <= line <= last for first, last in ranges)
        ]
        return tuple(dict.fromkeys(found))

    def _keep(self, number: int, first: int, last: int) -> tuple[str, ...]:
        ranges = self._ranges.setdefault(number, [])
        if (first, last) not in ranges:
            ranges.append((first, last))
        lost = self._text(number)[1]
        return tuple(dict.fromkeys(name for line, name in lost if first <= line <= last))

    def _text(self, number: int) -> Redacted:
        if number not in self._redacted:
            cell = self._cells.get(number)
            self._redacted[number] = redact(cell.text, self._rule) if cell is not None else ("", ())
        return self._redacted[number]
