"""Tables for people: as wide as the terminal, and unabridged when something else reads them.

Ids, times and sizes are never cut; a column says itself whether and when it gives way.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast.view.words import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_UNABRIDGED = 100_000
GAP = 2
LEAST = 8  # less says nothing


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and how the cells below it look."""

    title: str
    style: str = ""
    justify: Literal["left", "right"] = "left"
    cut: Literal[0, 1, 2] = 0  # 0: never; 1: the first to give way; 2: after those
    optional: bool = False  # left out when it has nothing to say


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], *, headings: bool = True
) -> str:
    """Lay out rows of plain text under their headings."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    cells = [[printable(cell) for cell in row] for row in rows]
    shown = [
        at
        for at, column in enumerate(columns)
        if not column.optional or any(row[at] for row in cells)
    ]
    natural = [
        max([cell_len(columns[at].title) * headings, *(cell_len(row[at]) for row in cells)])
        for at in shown
    ]
    limit = _terminal_width()
    widths = fit([columns[at] for at in shown], natural, limit) if limit else natural
    grid = Table(
        box=None,
        pad_edge=False,
        padding=(0, GAP, 0, 0),
        header_style="bold",
        show_header=headings,
    )
    kept = [(at, width) for at, width in zip(shown, widths, strict=True) if width]
    for at, width in kept:
        column = columns[at]
        grid.add_column(
            column.title,
            style=column.style,
            justify=column.justify,
            no_wrap=True,
            overflow="ellipsis",
            width=width,
        )
    for row in cells:
        # Text, never markup: what somebody wrote into a reason is shown as it is.
        grid.add_row(*(Text(row[at]) for at, _ in kept))
    # What may not be cut may be wider than the terminal; rich would cut it all the same.
    return render(grid, at_least=sum(width + GAP for _, width in kept))


def fit(columns: Sequence[Column], natural: Sequence[int], limit: int) -> list[int]:
    """How wide each column may be; 0 leaves it out. Those that may be cut give way in their order,
    the widest of them first; when that is not enough, the last of the first ones goes."""
    widths = list(natural)
    there = [at for at, width in enumerate(widths) if width]
    excess = sum(widths) + GAP * (len(there) - 1) - limit
    for turn in (1, 2):
        able = [at for at in there if columns[at].cut == turn]
        while excess > 0 and able:
            widest = max(able, key=lambda at: widths[at])
            if widths[widest] <= max(LEAST, len(columns[widest].title)):
                able.remove(widest)
                continue
            widths[widest] -= 1
            excess -= 1
    spare = [at for at in there if columns[at].cut == 1]
    if excess > 0 and spare:
        return fit(columns, [0 if at == spare[-1] else w for at, w in enumerate(natural)], limit)
    return widths


def render(renderable: RenderableType, at_least: int = 0) -> str:
    """What rich would print to stdout, as text: writing it is left to one place."""
    from rich.console import Console

    watched = _terminal_width()
    page = io.StringIO()
    console = Console(
        file=page,
        force_terminal=watched > 0,
        force_jupyter=False,  # a notebook gets text, as everybody does
        width=max(watched, at_least) if watched else _UNABRIDGED,
        height=25,  # of no matter, but without it rich takes a dumb terminal for 80 columns wide
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(renderable)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def _terminal_width() -> int:
    """How wide the terminal is; 0 when stdout is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def draws_lines() -> bool:
    """Whether stdout can show line-drawing characters."""
    return (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
