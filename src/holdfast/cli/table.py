"""Tables for people: as wide as the terminal, and unabridged when something else reads them."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast.server.words import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_UNABRIDGED = 100_000


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and how the cells below it look."""

    title: str
    style: str = ""
    justify: Literal["left", "right"] = "left"


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """Lay out rows of plain text under their headings."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        grid.add_column(
            column.title,
            style=column.style,
            justify=column.justify,
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        # Text, never markup: what somebody wrote into a reason is shown as it is.
        grid.add_row(*(Text(printable(cell)) for cell in row))
    return render(grid)


def render(renderable: RenderableType) -> str:
    """What rich would print to stdout, as text: writing it is left to one place."""
    from rich.console import Console

    watched = sys.stdout.isatty()
    page = io.StringIO()
    console = Console(
        file=page,
        force_terminal=watched,
        width=shutil.get_terminal_size().columns if watched else _UNABRIDGED,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(renderable)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def draws_lines() -> bool:
    """Whether stdout can show line-drawing characters."""
    return (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
