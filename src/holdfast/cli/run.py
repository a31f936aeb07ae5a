"""`holdfast run`."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.quantities import Number
from holdfast.cli.screen import Screen

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.report import Report
    from holdfast.session import Session
    from holdfast.session.result import ErrorInfo
    from holdfast.session.script import Cell, Plan

_NUMBER = re.compile(r"-?[0-9]+")
_CELL = re.compile(r'^( *File )"<cell \d+>"', re.MULTILINE)


class Strict(click.Command):
    """Takes no unknown option for the script's: who mistypes `--dry-run` wants nothing run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from holdfast.model.errors import UsageError

            hint = f"the script's own options stand behind --; see `{ctx.command_path} --help`"
            raise UsageError(error.format_message(), hint=hint) from None


class CellName(click.ParamType[int | str]):
    """A cell's number, or its title."""

    name = "cell"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        text = str(value).strip()
        number = text.lstrip("+-")
        if number and not number.isdecimal():
            return text
        return Number(1).convert(text, param, ctx)


@click.command("run", cls=Strict)
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--from",
    "start",
    type=CellName(),
    metavar="CELL",
    help="Run from this cell on: its number, or its title.",
)
@click.option("--dry-run", is_flag=True, help="Show what would run, and run nothing.")
@click.pass_obj
def command(
    invocation: Invocation,
    name: str,
    file: Path,
    arguments: tuple[str, ...],
    start: int | str | None,
    dry_run: bool,
) -> None:
    """Run a script's cells in a durable session, resuming where it stopped.

    Cells begin at lines `# %%`; in a script without any, each top-level statement is one. After
    each there is a checkpoint of the session NAME. Run again, what is behind the last one is not
    run again, whatever stopped it; after a change in the script, the changed cell and all that
    follow are, and with other arguments all of them. ARGUMENTS are the script's own (sys.argv);
    options among them stand behind `--`.
    """
    from holdfast.model.errors import BadInput
    from holdfast.session import Session, script

    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is not UTF-8: {error.reason}", hint="save it as UTF-8") from None
    cells = script.cells_of(text, str(file), arguments)
    with invocation.store(create=True) as store:
        paths = [str(file.resolve().parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        session = Session(
            name,
            store=store,
            fresh=True,
            env={"PYTHONPATH": os.pathsep.join(paths)},
        )
        head = store.head(session.subject)
        past = list(script.line(store.list(), head))
        plan = script.plan(cells, past, file.name)
        if isinstance(start, str):
            start = script.number_of(cells, start)
        if start is not None:
            plan = script.restarted(plan, past, start)
        invocation.tell(_told(plan, str(file)))
        if head is not None and script.left(plan, past, file.name) is not None:
            invocation.tell(_left(plan, head))
        outcome = Outcome(plan, [None] * plan.done)
        if plan.rest and not dry_run:
            asyncio.run(Run(session, file, arguments, outcome, quiet=invocation.json).all())
    # The script's own output is all that a person expects on stdout.
    invocation.show(outcome.document(str(session.subject), dry_run), lambda: "")
    outcome.check(file, _again(invocation, name, file, arguments))


def _said(error: ErrorInfo, file: Path) -> str:
    """What `python` would say: of `sys.exit` its text, else a traceback, with the script in place
    of its cells, whose lines have the script's numbers."""
    code = exit_code(error)
    if code is not None:
        return f"{error.message}\n" if code == 1 and error.message not in ("1", "True") else ""
    if not error.traceback:
        return ""
    return _CELL.sub(lambda found: f'{found[1]}"{file}"', error.traceback.rstrip("\n")) + "\n"


def _again(invocation: Invocation, name: str, file: Path, arguments: tuple[str, ...]) -> str:
    """The command that goes on with the script, for a person to copy."""
    import shlex

    store = invocation.options.get("store")
    where = [] if store is None else ["--store", str(store)]
    own = ["--", *arguments] if any(each.startswith("-") for each in arguments) else arguments
    return shlex.join(["holdfast", "run", *where, name, str(file), *own])


def _told(plan: Plan, file: str) -> str:
    """The plan for a person who is about to watch it."""
    from holdfast.view.words import count

    if not plan.cells:
        return f"{file}: there is nothing to run"
    total = count(len(plan.cells), "cell")
    if not plan.rest:
        return f"{file}: {total}, all done; --from 1 runs them again"
    if plan.at is None:
        return f"{file}: {total} to run{_why_all(plan)}"
    goes_on = f"{file}: {total}; going on at cell {plan.done + 1} from {plan.at.short}"
    if plan.stale is not None:
        other = f"{plan.stale.short} is of another script, {_script_of(plan.stale)}"
        same = f"that cell was changed after {plan.stale.short}"
        goes_on += f": {other if plan.changed == 'script' else same}"
    return goes_on


def _why_all(plan: Plan) -> str:
    if plan.stale is None:
        return ""
    if plan.changed == "script":
        return f", because {plan.stale.short} is of another script, {_script_of(plan.stale)}"
    what = "arguments were" if plan.changed == "arguments" else "first cell was"
    return f", because its {what} changed"


def _script_of(checkpoint: Checkpoint) -> str:
    from holdfast.session.script import script_of
    from holdfast.view.words import printable

    return printable(script_of(checkpoint) or "")


def _left(plan: Plan, head: Checkpoint) -> str:
    """What becomes of work in the session that is not the script's, and how to have it back."""
    goes = "this begins a new line" if plan.at is None else f"this goes on from {plan.at.short}"
    back = f"`holdfast rollback {head.subject} --to {head.short}` goes back to it"
    return f"{head.subject} has other work, up to {head.short}, and {goes} without it; {back}"


@dataclass(slots=True)
class Outcome:
    """What became of each cell: how many seconds it took, None for one that was done before."""

    plan: Plan
    seconds: list[float | None]
    last: Checkpoint | None = None
    failed: Cell | None = None
    error: ErrorInfo | None = None
    interrupted: bool = False
    left: Cell | None = None  # with `sys.exit()`, before the last one: nothing is wrong

    def document(self, subject: str, dry_run: bool) -> dict[str, object]:
        from holdfast.server import shapes

        head = self.last or self.plan.at
        return {
            "subject": subject,
            "dry_run": dry_run,
            "cells": [self._cell(cell) for cell in self.plan.cells],
            "checkpoint": shapes.checkpoint(head) if head is not None else None,
            "error": None if self.error is None else str(self.error),
            "interrupted": self.interrupted,
        }

    def _cell(self, cell: Cell) -> dict[str, object]:
        index = cell.number - 1
        ran = index < len(self.seconds)
        status = "to run"
        if cell is self.failed:
            status = "failed"
        elif cell is self.left:
            status = "left"
        elif ran:
            status = "done" if self.seconds[index] is None else "ran"
        return {
            "number": cell.number,
            "line": cell.first,
            "title": cell.title,
            "status": status,
            "seconds": self.seconds[index] if ran else None,
        }

    def check(self, file: Path, command: str) -> None:
        """Turn what ended the script into an exit code: raises ScriptStopped, and ends with 130
        after Ctrl-C, and with what `sys.exit` was given. `command` goes on with the script."""
        from holdfast.session.errors import ScriptStopped

        cell = self.failed or self.left
        if cell is None:
            return
        kept = f"{len(self.seconds)} of {len(self.plan.cells)} cells are kept"
        again = f"`{command}` goes on at cell {cell.number}"
        if self.interrupted:
            print(f"interrupted in cell {cell.number}; {kept}; {again}", file=sys.stderr)
            raise click.exceptions.Exit(130)
        where = f"cell {cell.number} ({file}, line {cell.first})"
        code = exit_code(self.error) if self.error is not None else 0
        if code is not None:
            print(f"sys.exit in {where}; {kept}; {again}", file=sys.stderr)
            raise click.exceptions.Exit(code)
        raise ScriptStopped(f"{where}: {self.error}", hint=f"{kept}; {again}")


def exit_code(error: ErrorInfo) -> int | None:
    """What `python` would end with after `sys.exit`; None for any other error."""
    if error.type != "SystemExit":
        return None
    if error.message in ("", "None", "False"):
        return 0
    # A text is told on stderr, and is an error; so is True, which is 1.
    return int(error.message) & 0xFF if _NUMBER.fullmatch(error.message) else 1


@dataclass(slots=True)
class Run:
    """Carries out a plan: the cells that are left, one by one, each followed by a checkpoint."""

    session: Session
    file: Path
    arguments: tuple[str, ...]
    outcome: Outcome
    quiet: bool
    _asked: int = 0  # how often somebody asked us to stop
    _tasks: list[asyncio.Task[object]] = field(default_factory=list)

    async def all(self) -> None:
        from holdfast.session.door import Door

        session, plan = self.session, self.outcome.plan
        door = Door(session.store)
        try:
            if plan.at is not None:
                self._tell_losses(await session.restore(plan.at))
            else:
                await session.start()
            await self._prepare()
            screen = Screen(len(plan.cells), self.quiet)
            async with door.open(session):
                with self._stopping(), screen.watched():
                    await self._cells(screen)
        finally:
            await session.shutdown()

    async def _cells(self, screen: Screen) -> None:
        for cell in self.outcome.plan.rest:
            screen.advance(cell.number - 1, cell.title)
            if not await self._cell(cell, screen):
                return
            screen.advance(cell.number, cell.title)

    async def _prepare(self) -> None:
        argv = [str(self.file), *self.arguments]
        code = f"__import__('sys').argv[:] = {argv!r}; __file__ = {str(self.file)!r}"
        await self.session.execute(code, check=True)

    async def _cell(self, cell: Cell, screen: Screen) -> bool:
        from holdfast.session import script

        execution = self.session.stream(cell.code, on_input=screen.ask)
        async for event in execution:
            screen.write(event.text, event.stream)
        result = execution.result
        leaves = result.error is not None and exit_code(result.error) == 0 and not self._asked
        if leaves and cell is not self.outcome.plan.cells[-1]:
            self.outcome.left = cell  # run again next time: those after it are not to be run
            return False
        if result.error is not None and not leaves:
            self.outcome.failed, self.outcome.error = cell, result.error
            self.outcome.interrupted = self._asked > 0
            if not self._asked:
                screen.write(_said(result.error, self.file), "stderr")
            return False
        made = await self.session.checkpoint(reason=script.reason(self.file.name), stage=cell.stage)
        self.outcome.seconds.append(result.duration)
        self.outcome.last = made.checkpoint
        return True

    def _tell_losses(self, report: Report) -> None:
        from holdfast.view.session import lost_line

        for item in report.items:
            if item.outcome in ("placeholder", "skipped") and not self.quiet:
                print(lost_line(item), file=sys.stderr)

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the running cell; the third time, the worker. The rest is kept."""
        import signal

        loop = asyncio.get_running_loop()

        def ask() -> None:
            self._asked += 1
            stop: Callable[[], Coroutine[None, None, object]] = self.session.interrupt
            if self._asked > 2:
                stop = self.session.shutdown
            self._tasks.append(loop.create_task(stop()))

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ask)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
