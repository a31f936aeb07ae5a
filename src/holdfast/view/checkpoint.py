"""What a session's checkpoint holds, for people: its variables as a table, its code highlighted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.checkpoint import Manifest
from holdfast.model.errors import Corrupt, NotFound
from holdfast.model.report import Item, Report
from holdfast.view.table import Column, render, table
from holdfast.view.words import printable, size

if TYPE_CHECKING:
    from holdfast.session.layout import Cell
    from holdfast.store import Store

_GAP = re.compile(r"\n(?:[ \t]*\n){2,}")


def changes(store: Store, manifest: Manifest, *, trust: bool = False) -> dict[str, str] | None:
    """What became of each variable since the parent; None without one, or of something else."""
    from holdfast.session.variables import compare

    checkpoint = manifest.checkpoint
    if checkpoint.subject.kind != "session" or not checkpoint.parents:
        return None
    try:
        found = compare(store, store.diff(checkpoint.parents[0], checkpoint.id, trust=trust),
                        trust=trust)  # fmt: skip
    except (NotFound, Corrupt):
        return None  # the parent is gone or damaged, which is not this checkpoint's fault
    return None if found is None else {each.name: each.change for each in found}


def cells(store: Store, manifest: Manifest, *, trust: bool = False) -> tuple[Cell, ...]:
    """The source that a session's checkpoint keeps; nothing of anything else."""
    from holdfast.session import layout

    part = manifest.part("sources")
    if manifest.checkpoint.subject.kind != "session" or part is None or part.split != "structure":
        return ()
    try:
        value = store.value(manifest.checkpoint, "sources", trust=trust)
        found = msgspec.convert(value, layout.Sources).cells
    except (msgspec.ValidationError, Corrupt):
        return ()  # another writer's idea of a session
    return tuple(cell for cell in found if cell.text.strip())


def variables(report: Report, changed: Mapping[str, str]) -> str:
    """The names of a session, what they are and how they are kept."""
    columns = (
        Column("NAME", "bold", cut=2),
        Column("TYPE", "cyan", cut=2, optional=True),
        Column("WHAT", cut=1, optional=True),
        Column("SIZE", justify="right"),
        Column("OUTCOME", "green"),
        Column("TIER", "dim"),
        Column("CHANGED", "yellow", optional=True),
        Column("REASON", cut=1, optional=True),
    )
    gone = [name for name, change in changed.items() if change == "removed"]
    rows = [_row(each, changed.get(each.name, "")) for each in report.items]
    rows += [(name, "", "", "", "-", "", "removed", "") for name in gone]
    return table(columns, rows)


def _row(item: Item, change: str) -> tuple[str, ...]:
    bytes_ = size(item.size_bytes) if item.size_bytes else ""
    return (
        item.name, item.type_name, item.summary, bytes_, item.outcome, item.tier, change,
        item.reason,
    )  # fmt: skip


def code(found: tuple[Cell, ...]) -> str:
    """Source as it ran, cell by cell, in colours where there are any."""
    from rich.console import Group
    from rich.syntax import Syntax
    from rich.text import Text

    shown: list[Text] = []
    for cell in found:
        text = _GAP.sub("\n\n", cell.text.strip("\n"))
        lines = "\n".join(printable(line.replace("\t", "    ")) for line in text.split("\n"))
        painted = Syntax("", "python", theme="ansi_dark", background_color="default")
        shown += [
            Text(f"CELL {cell.number}", "bold"),
            painted.highlight(lines.strip("\n")),
            Text(""),
        ]
    return render(Group(*shown)).rstrip("\n")
