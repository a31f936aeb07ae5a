"""A subject's lineage as rows of a drawing: one lane per line of descent, newest first.

It is pure: checkpoints in, rows out. The command line prints the rows, the page shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.model.checkpoint import Checkpoint, HeadMove
from holdfast.model.subject import Subject

_ASCII = str.maketrans("●○│├─┼┴╯╮", "*o||-+'/\\")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the drawing; a row without a checkpoint only joins, opens or parts lanes."""

    graph: str
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What there is to tell about the descent of one subject."""

    subject: Subject
    head: str | None
    rows: tuple[Row, ...]
    origins: tuple[Checkpoint, ...]  # checkpoints of other subjects that this one was forked from
    forks: tuple[Checkpoint, ...]  # first checkpoints of the subjects forked from this one
    moves: tuple[HeadMove, ...]

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The subject's own checkpoints, newest first."""
        return [row.checkpoint for row in self.rows if row.checkpoint is not None]


def trace(
    subject: Subject,
    everything: Sequence[Checkpoint],
    head: str | None,
    moves: Iterable[HeadMove] = (),
) -> Lineage:
    """The lineage of a subject, out of all checkpoints of a store (newest first)."""
    own = [checkpoint for checkpoint in everything if checkpoint.subject == subject]
    ids = {checkpoint.id for checkpoint in own}
    elsewhere = {parent for checkpoint in own for parent in checkpoint.parents} - ids
    others = [checkpoint for checkpoint in everything if checkpoint.subject != subject]
    return Lineage(
        subject=subject,
        head=head,
        rows=tuple(draw(own, head)),
        origins=tuple(other for other in others if other.id in elsewhere),
        forks=tuple(other for other in others if ids.intersection(other.parents)),
        moves=tuple(moves),
    )


def draw(checkpoints: Sequence[Checkpoint], head: str | None) -> list[Row]:
    """Rows for checkpoints given newest first, so that children come before their parents."""
    known = {checkpoint.id for checkpoint in checkpoints}
    lanes: list[str | None] = []  # the checkpoint that each lane leads down to
    rows: list[Row] = []
    ended: int | None = None  # where the line of the row above came to its beginning
    for checkpoint in checkpoints:
        waiting = [at for at, lane in enumerate(lanes) if lane == checkpoint.id]
        column = waiting[0] if waiting else _free(lanes, 0)
        if column == ended:
            # Right below, it would seem to be the parent of what does not descend from it.
            rows.append(Row(_line(lanes, column, " ")))
        if len(waiting) > 1:
            rows.append(Row(_join(lanes, column, waiting[1:], "╯")))
            for at in waiting[1:]:
                lanes[at] = None
        lanes[column] = checkpoint.id
        node = "●" if checkpoint.id == head else "○"
        rows.append(Row(_line(lanes, column, node), checkpoint))
        parents = [parent for parent in checkpoint.parents if parent in known]
        lanes[column] = parents[0] if parents else None
        ended = None if parents else column
        opened = []
        for parent in parents[1:]:
            if parent not in lanes:
                at = _free(lanes, column + 1)
                lanes[at] = parent
                opened.append(at)
        if opened:
            rows.append(Row(_join(lanes, column, opened, "╮")))
        while lanes and lanes[-1] is None:
            lanes.pop()
    return rows


def to_ascii(graph: str) -> str:
    """The same drawing for a terminal that has no line characters."""
    return graph.translate(_ASCII)


def _free(lanes: list[str | None], start: int) -> int:
    for at in range(start, len(lanes)):
        if lanes[at] is None:
            return at
    lanes.extend([None] * (max(start, len(lanes)) + 1 - len(lanes)))
    return len(lanes) - 1


def _line(lanes: Sequence[str | None], column: int, node: str) -> str:
    marks = ("│" if lane is not None else " " for lane in lanes)
    return " ".join(node if at == column else mark for at, mark in enumerate(marks)).rstrip()


def _join(lanes: Sequence[str | None], column: int, ends: Sequence[int], last: str) -> str:
    """The row that connects `column` with the lanes in `ends`, all of them to its right."""
    text = ""
    for at, lane in enumerate(lanes):
        inside = column < at < ends[-1]
        if at == column:
            mark = "├"
        elif at == ends[-1]:
            mark = last
        elif at in ends:
            mark = "┴"
        elif inside:
            mark = "─" if lane is None else "┼"
        else:
            mark = " " if lane is None else "│"
        text += mark + ("─" if column <= at < ends[-1] else " ")
    return text.rstrip()
