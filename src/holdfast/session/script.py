"""Scripts as cells, and which of them still have to run. Pure: values in, a plan out.

Progress is kept nowhere but in the lineage: the checkpoint after a cell bears, as its stage, the
cell's *mark*, a hash over this cell and all before it. So a changed cell and everything after it
has no mark in the lineage, and nothing else can get out of step. The script's arguments, where it
has any, stand beside the mark as a hash of their own: with others, nothing has run.
"""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from blake3 import blake3

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput

_DIVIDER = re.compile(r"#\s*%%(?P<title>.*)")
_TITLE = re.compile(r"#[^\S\r\n]*%%[^\r\n]*")
_STAGE = re.compile(
    r"cell (?P<number>\d+) of \d+ #(?P<mark>[0-9a-f]{16})(?: with #(?P<arguments>[0-9a-f]{16}))?"
)
Change = Literal["cell", "arguments", "script"]
_RUN = "run "  # with the script's name: why a checkpoint of it was made
_MARK = 8  # bytes: enough to tell the versions of one script apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A piece of a script that is run and checkpointed as one."""

    number: int
    of: int
    first: int  # its first line in the script
    text: str
    title: str
    mark: str
    former: str  # the same as it was once made, with the titles: such are in stores
    arguments: str = ""  # the hash of the script's arguments, if there are any

    @property
    def marks(self) -> tuple[tuple[str, str], ...]:
        """What a checkpoint bears that was made after this cell."""
        return (self.mark, self.arguments), (self.former, self.arguments)

    @property
    def stage(self) -> str:
        """What the checkpoint after this cell is marked with."""
        given = f" with #{self.arguments}" if self.arguments else ""
        return f"cell {self.number} of {self.of} #{self.mark}{given}"

    @property
    def code(self) -> str:
        """The cell with its line numbers of the script, for tracebacks."""
        return "\n" * (self.first - 1) + self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is there already, and what will be run."""

    cells: tuple[Cell, ...]
    done: int  # so many cells are behind `at`
    at: Checkpoint | None
    stale: Checkpoint | None = None  # a later cell's checkpoint, of a script that was changed
    changed: Change = "cell"  # since the one that is stale

    @property
    def rest(self) -> tuple[Cell, ...]:
        return self.cells[self.done :]


def cells_of(text: str, name: str = "<script>", arguments: Sequence[str] = ()) -> tuple[Cell, ...]:
    """A script's cells: between `# %%` lines, or each top-level statement where there are none.

    What they do may hang on the script's arguments. Raises BadInput for what is no Python.
    """
    try:
        tree = ast.parse(text, name)
        dividers = list(_dividers(text))
    except (SyntaxError, ValueError, tokenize.TokenError) as error:
        line = getattr(error, "lineno", None)
        where = f"{name}, line {line}" if line else name
        raise BadInput(
            f"{where}: {getattr(error, 'msg', None) or error}", hint="nothing was run"
        ) from None
    starts = [(1, ""), *dividers] if dividers else list(_statements(tree))
    lines = text.splitlines(keepends=True)
    ends = [*(first for first, _ in starts[1:]), len(lines) + 1]
    pieces: list[tuple[int, str, str]] = []
    for (first, title), end in zip(starts, ends, strict=False):
        piece = "".join(lines[first - 1 : end - 1])
        if _has_code(piece, name, first):
            pieces.append((first, piece, title))
    return tuple(_marked(pieces, _hash_of(arguments)))


def _hash_of(arguments: Sequence[str]) -> str:
    """No argument has a zero byte in it."""
    given = b"".join(os.fsencode(each) + b"\0" for each in arguments)
    return blake3(given).digest()[:_MARK].hex() if given else ""


def _has_code(piece: str, name: str, first: int) -> bool:
    """Whether there is more than comments: those need no checkpoint. Raises BadInput."""
    try:
        return bool(ast.parse(piece).body)
    except SyntaxError as error:
        line = first - 1 + (error.lineno or 1)
        raise BadInput(
            f"{name}, line {line}: a # %% line stands in the middle of a statement",
            hint="indent it, or move it between two statements; nothing was run",
        ) from None


def _dividers(text: str) -> Iterator[tuple[int, str]]:
    """Lines that begin a cell. By token: such a line inside a string is text."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.start[1] == 0:
            found = _DIVIDER.match(token.string)
            if found:
                yield token.start[0], found["title"].strip()


def _statements(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Where each top-level statement begins; those that share a line stay together."""
    end = 0
    for node in tree.body:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(each.lineno for each in decorators)])
        if first > end:
            yield first, ""
        end = max(end, node.end_lineno or first)


def _marked(pieces: list[tuple[int, str, str]], arguments: str) -> Iterator[Cell]:
    chain = titled = b""
    for number, (first, piece, title) in enumerate(pieces, 1):
        # What only moved within the file, or lost a trailing blank line, is not changed; nor is
        # what is only called something else.
        chain = blake3(chain + _untitled(piece).strip("\r\n").encode()).digest()
        titled = blake3(titled + piece.strip("\r\n").encode()).digest()
        yield Cell(
            number=number,
            of=len(pieces),
            first=first,
            text=piece,
            title=title or _first_line(piece),
            mark=chain[:_MARK].hex(),
            former=titled[:_MARK].hex(),
            arguments=arguments,
        )


def _untitled(piece: str) -> str:
    """A cell without the line that begins it."""
    found = _TITLE.match(piece)
    return piece[found.end() :] if found else piece


def _first_line(piece: str) -> str:
    lines = (line.strip() for line in piece.splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")


def line(checkpoints: Iterable[Checkpoint], head: Checkpoint | None) -> Iterator[Checkpoint]:
    """What a head descends from, newest first; a rollback stands for what it went back to.

    One whose target is gone ends the line: what its parents left is not in it, and where its
    content came from nobody can tell any more.
    """
    known = {checkpoint.id: checkpoint for checkpoint in checkpoints}
    at = head
    while at is not None:
        target = at.rollback_of
        while target is not None and target in known:
            at = known[target]
            target = at.rollback_of
        yield at
        at = known.get(at.parents[0]) if at.parents and target is None else None


def reason(name: str) -> str:
    """Why checkpoints are made of the script with that file name."""
    return _RUN + name


def script_of(checkpoint: Checkpoint) -> str | None:
    """The file name of the script that a checkpoint was made of; None where nobody can tell."""
    if _mark_of(checkpoint) is None or not checkpoint.reason.startswith(_RUN):
        return None
    return checkpoint.reason.removeprefix(_RUN)


def plan(cells: tuple[Cell, ...], past: Iterable[Checkpoint], name: str | None = None) -> Plan:
    """Go on after the last checkpoint in `past`, newest first, whose mark the script still has.

    `name` is the script's file name: what ran under another one was another script.
    """
    numbers = {mark: cell.number for cell in cells for mark in cell.marks}
    arguments = cells[0].arguments if cells else ""
    stale: Checkpoint | None = None
    changed: Change = "cell"
    for checkpoint in past:
        mark = _mark_of(checkpoint)
        if mark is None:
            continue
        if mark in numbers:
            done = numbers[mark]
            return Plan(cells=cells, done=done, at=checkpoint, stale=stale, changed=changed)
        if stale is None:
            stale = checkpoint
            if name is not None and script_of(checkpoint) not in (None, name):
                changed = "script"
            elif mark[1] != arguments:
                changed = "arguments"
    return Plan(cells=cells, done=0, at=None, stale=stale, changed=changed)


def _mark_of(checkpoint: Checkpoint) -> tuple[str, str] | None:
    """The mark of the cell that a checkpoint was made after, and the hash of its arguments."""
    found = _STAGE.fullmatch(checkpoint.stage or "")
    return (found["mark"], found["arguments"] or "") if found else None


def left(plan: Plan, past: Sequence[Checkpoint], name: str) -> Checkpoint | None:
    """The work that a plan turns away from, and that is none of the script `name`: a prompt's, say,
    or another script's. `past` is the line of the head."""
    if not plan.rest or not past or past[0] is plan.at:
        return None
    last = past[0]
    return last if _mark_of(last) is None or script_of(last) not in (None, name) else None


def number_of(cells: tuple[Cell, ...], title: str) -> int:
    """Which cell has that title. Raises BadInput when none has it, or several."""
    found = [cell.number for cell in cells if cell.title == title]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(
            f"{len(found)} cells have the title {title!r}",
            hint=f"by number: {', '.join(map(str, found))}",
        )
    close = get_close_matches(title, [cell.title for cell in cells], n=1)
    raise BadInput(
        f"no cell has the title {title!r}",
        hint=f"did you mean {close[0]!r}?" if close else "`--dry-run --json` lists the cells",
    )


def restarted(plan: Plan, past: Iterable[Checkpoint], number: int) -> Plan:
    """The same, but with cell `number` run again. Raises BadInput when it is not there."""
    if not plan.cells:
        raise BadInput(f"there is no cell {number}", hint="the script has no code")
    if not 1 <= number <= len(plan.cells):
        raise BadInput(
            f"there is no cell {number}", hint=f"the script has cells 1 to {len(plan.cells)}"
        )
    if plan.done < number - 1:
        raise BadInput(
            f"cell {number} needs the cells before it, and only {plan.done} of them have run",
            hint=f"--from {plan.done + 1} at most",
        )
    if number == 1:
        return Plan(cells=plan.cells, done=0, at=None)
    wanted = plan.cells[number - 2]
    for checkpoint in past:
        if _mark_of(checkpoint) in wanted.marks:
            return Plan(cells=plan.cells, done=number - 1, at=checkpoint)
    raise BadInput(
        f"the checkpoint after cell {number - 1} is gone",
        hint="--from 1 runs everything again",
    )
