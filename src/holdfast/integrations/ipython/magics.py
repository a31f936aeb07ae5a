"""The commands of `holdfast repl` as IPython magics, and a checkpoint after each cell."""

from __future__ import annotations

import ast
import atexit
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import InputRejected
from IPython.core.error import UsageError as Misused

from holdfast.integrations.ipython.cells import Cells
from holdfast.integrations.ipython.farewell import Farewell
from holdfast.integrations.ipython.names import session_name, window
from holdfast.integrations.ipython.notebook import Notebook
from holdfast.model.errors import HoldfastError
from holdfast.session.worker.inspection import variables
from holdfast.view import magics, session

if TYPE_CHECKING:
    from holdfast.model.report import Report
    from holdfast.model.subject import Subject

TRANSACTION = "%%transaction"
# Stands in the text of such a cell, and is taken out of its tree by `_admit`: so a cell that has
# it runs only when its transaction has begun, whichever way it comes.
_MARK = "a transaction of holdfast"
_WINDOW = "--window"
_ATTRIBUTE = "holdfast"  # of the shell, where the extension is found again
# What a prompt has and a notebook has no use for.
_OTHERS = {"help", "quit"}
# What is answered with what is stored; the others need all that ran.
_AT_ONCE = {"log", "whos"}


class Extension:
    """What `%load_ext holdfast` adds to a shell, and takes away again."""

    def __init__(self, shell: Any, notebook: Notebook) -> None:
        self._shell = shell
        self._notebook = notebook
        self._cells = Cells(shell, notebook.workspace, self._admit)
        self._farewell = Farewell(shell, notebook)
        self._running: list[Any] = []  # what IPython says of the cell that runs, and of its own
        self._begun: str | None = None  # the checkpoint that a transaction began with
        self._refused: BaseException | None = None  # why it could not
        self._due = False  # whether the cell that runs is followed by a checkpoint
        self._theirs: Callable[[str], Any] | None = None  # IPython's own %whos
        self._changes: tuple[tuple[str, Callable[..., None]], ...] = (
            ("pre_run_cell", self._before),
            ("post_run_cell", self._after),
        )

    def install(self, report: Report | None) -> None:
        """Watch the shell, whose session has begun with this report."""
        self._due = report is None  # what this very cell did beside loading
        self._cells.install()
        self._farewell.install()
        for event, function in self._changes:
            self._shell.events.register(event, function)
        self._shell.input_transformers_cleanup.append(_without_marker)
        self._theirs = self._shell.find_line_magic("whos")
        for name in magics.MAGICS.keys() - _OTHERS:
            self._shell.register_magic_function(self._magic(name), "line", name)
        self._shell.register_magic_function(self._status, "line", "holdfast")
        self._shell.register_magic_function(_misplaced, "cell", TRANSACTION.strip("%"))
        atexit.register(self._notebook.close)
        self._greet(report)

    @property
    def subject(self) -> Subject:
        """The session."""
        return self._notebook.subject

    def leave_for(self, name: str) -> tuple[Notebook, Report | None] | None:
        """Begin another session in this kernel, with what is known of its definitions, after a last
        checkpoint of this one. None when this one is meant.

        Raises HoldfastError; then this one goes on as if nothing had been said.
        """
        other = Notebook(self._shell, name, None, self._notebook)
        if other.subject == self.subject:
            return None
        other.history.own()
        try:
            self._notebook.settle()
            if self._notebook.names():
                self._notebook.checkpoint("before another session")
            return other, other.begin(replace=True)
        except BaseException:
            other.history.disown()
            raise

    def end(self) -> None:
        """Take everything away again."""
        atexit.unregister(self._notebook.close)
        with _telling():
            self._notebook.settle()
        for event, function in self._changes:
            self._shell.events.unregister(event, function)
        self._shell.input_transformers_cleanup.remove(_without_marker)
        self._cells.uninstall()
        self._farewell.uninstall()
        lines = self._shell.magics_manager.magics["line"]
        for name in (*(magics.MAGICS.keys() - _OTHERS), "holdfast"):
            lines.pop(name, None)
        self._shell.magics_manager.magics["cell"].pop(TRANSACTION.strip("%"), None)
        if self._theirs is not None:
            lines["whos"] = self._theirs
        with _telling():
            self._notebook.close()

    def _greet(self, report: Report | None) -> None:
        subject, history = self._notebook.subject, self._notebook.history
        head = history.store.head(subject)
        if report is not None and head is not None:
            print(f"{subject}, from {head.short} ({head.reason})")
            print("\n".join(session.came_back(report)))
        elif head is not None:
            print(f"{subject} has checkpoints, and this kernel has variables of its own.")
            print(f"%restore {head.short} replaces them; otherwise a new line begins here.")
        else:
            print(f"{subject}, new; %holdfast lists the commands")

    # -- cells ---------------------------------------------------------------------------

    def _before(self, info: Any) -> None:
        self._cells.watching = bool(info.store_history)
        self._running.append(info)
        if len(self._running) > 1:
            return  # it is run by the cell that runs
        self._due = info.store_history and not _only_magic(info.raw_cell)
        self._begun = self._refused = None
        self._notebook.cell_begins()
        if _is_transaction(info.raw_cell):
            try:
                self._begun = self._notebook.checkpoint("transaction").id
            except BaseException as error:  # noqa: BLE001  # IPython would run the cell all the same
                self._refused = error

    def _admit(self, tree: ast.Module) -> None:
        """Keep a transaction that has not begun from running. Raises InputRejected."""
        match tree.body:
            case [ast.Expr(ast.Constant(value=said)), *rest] if said == _MARK:
                tree.body = rest
            case _:
                return
        if len(self._running) > 1:
            raise InputRejected("not run: a transaction cannot begin inside of another cell")
        if self._begun is None:
            self._due = False
            why = _words(self._refused) if self._refused is not None else "a cell that is silent"
            raise InputRejected(f"not run: its transaction could not begin: {why}")

    def _after(self, result: Any) -> None:
        """In the kernel's main thread, before the front end hears that the cell has ended."""
        if result is None:  # it was cut short
            del self._running[-1:]
        elif result.info in self._running:
            del self._running[self._running.index(result.info) :]
        if self._running:
            return  # of a cell that the one that runs has run, or of an empty one
        self._cells.watching = False
        self._notebook.cell_ends()
        for failure in self._notebook.saving.failures():
            _tell(f"holdfast: a checkpoint failed: {failure}")
        begun, self._begun = self._begun, None
        due, self._due = self._due, False
        if begun is not None and (result is None or not result.success):
            self._roll_back(begun)
            return
        try:
            if due and self._notebook.names():
                counted = result is not None and result.execution_count
                self._notebook.keep(counted or self._shell.execution_count - 1)
            elif self._notebook.owed is not None:
                self._notebook.keep()
        except HoldfastError as error:
            _tell(f"holdfast: {error}")

    def _roll_back(self, begun: str) -> None:
        try:
            came = session.came_back(self._notebook.rollback(begun))
        except BaseException as error:
            _tell(f"holdfast: the transaction could not be rolled back: {error}")
            _tell(f"%rollback {begun} tries again")
            if not isinstance(error, HoldfastError):
                raise
            return
        _told(came)
        _tell("holdfast: the transaction was rolled back")

    # -- commands ------------------------------------------------------------------------

    def _magic(self, name: str) -> Callable[[str], None]:
        def run(line: str) -> None:
            if name == "whos" and line.strip() and self._theirs is not None:
                self._theirs(line)  # by type, as IPython has it
                return
            try:
                command = magics.parse(f"%{name} {line}")
                assert command is not None
                self._run(command)
            except HoldfastError as error:
                raise Misused(_words(error)) from None

        usage, what = magics.MAGICS[name]
        run.__doc__ = f"{f'%{name} {usage}'.strip()}: {what}."
        return run

    def _run(self, command: magics.Magic) -> None:
        notebook, given = self._notebook, command.arguments
        store, subject = notebook.history.store, notebook.subject
        coming = ", ".join(notebook.coming())
        if coming and command.name not in _AT_ONCE:
            print(f"waiting for the checkpoint of {coming}", flush=True)
        match command.name:
            case "checkpoint":
                made = notebook.checkpoint(" ".join(given) or "manual")
                print(f"{made.short}: {made.reason}")
            case "log":
                print(session.log_page(store, subject))
            case "whos":
                print(session.whos_page(store, subject, variables(notebook.names())))
            case "diff":
                notebook.settle()
                print(session.diff_page(store, notebook.diff(*given)))
            case "rollback":
                _told(session.moved(store, subject, notebook.rollback(*given)))
            case "restore":
                _told(session.moved(store, subject, notebook.restore(*given)))
            case "fork":
                notebook.freeze_as(given[0])
                print(f"session/{given[0]} is there: holdfast repl {given[0]}")
        if coming and command.name in _AT_ONCE:
            print(f"on its way: the checkpoint of {coming}")

    def _status(self, line: str) -> None:
        """%holdfast [NAME | --window SECONDS]: which session this is, and the commands.

        With a NAME, go on there. While cells follow one another at once, a checkpoint is made after
        SECONDS of work (2 by default); 0 makes one after each cell.
        """
        if line.split()[:1] == [_WINDOW]:
            self._set_window(line.split(maxsplit=1)[1:])
            return
        if line.strip():
            switch(self._shell, line.strip())
            return
        head = self._notebook.history.store.head(self._notebook.subject)
        print(f"{self._notebook.subject}" + (f", at {head.short} ({head.reason})" if head else ""))
        print("%holdfast NAME goes on with another session; %%transaction, as the first line of a")
        print("cell, undoes the cell when it raises")
        print(f"%holdfast {_WINDOW} SECONDS: the work that may be unsaved while cells run")
        print(f"without a pause, now {self._notebook.window:g} s")
        for usage, what in magics.overview(without=_OTHERS):
            print(f"{usage:24} {what}")

    def _set_window(self, given: list[str]) -> None:
        try:
            self._notebook.window = window(" ".join(given))
        except HoldfastError as error:
            raise Misused(_words(error)) from None
        print(f"at most {self._notebook.window:g} s of work are unsaved while cells run")


def load(shell: Any) -> None:
    """Make a shell durable. Raises IPython's UsageError."""
    if getattr(shell, _ATTRIBUTE, None) is not None:
        return
    try:
        chosen = session_name(os.environ, shell.user_ns, Path.cwd())
        notebook = Notebook(shell, _bare(chosen), None)
        if told := os.environ.get("HOLDFAST_WINDOW"):
            notebook.window = window(told)
        report = notebook.begin()
    except HoldfastError as error:
        raise Misused(_words(error)) from None
    _watch(shell, notebook, report)


def unload(shell: Any) -> None:
    """The opposite of `load`."""
    extension = getattr(shell, _ATTRIBUTE, None)
    if isinstance(extension, Extension):
        delattr(shell, _ATTRIBUTE)
        extension.end()


def switch(shell: Any, name: str) -> None:
    """Go on with another session, also a new one; this one is kept as it is now.

    Raises IPython's UsageError when the other one cannot be had; then this one goes on.
    """
    extension: Extension = getattr(shell, _ATTRIBUTE)
    try:
        begun = extension.leave_for(_bare(name))
    except HoldfastError as error:
        raise Misused(f"{_words(error)}; {extension.subject} goes on") from None
    if begun is None:
        print(f"this is {extension.subject}")
        return
    unload(shell)
    _watch(shell, *begun)


def _watch(shell: Any, notebook: Notebook, report: Report | None) -> None:
    extension = Extension(shell, notebook)  # it remembers what the shell is like without it
    extension.install(report)
    setattr(shell, _ATTRIBUTE, extension)


def _bare(name: str) -> str:
    return name.removeprefix("session/")


def _words(error: BaseException) -> str:
    if not isinstance(error, HoldfastError):
        return f"{type(error).__name__}: {error}"
    return f"{error}; {error.hint}" if error.hint else str(error)


def _only_magic(cell: str) -> bool:
    """Whether a cell is nothing but one of our commands, which is no work to be kept."""
    if cell.strip().startswith("%holdfast"):
        return True
    with suppress(HoldfastError):
        return magics.parse(cell) is not None
    return False


def _is_transaction(cell: str) -> bool:
    return cell.lstrip().split("\n", 1)[0].strip() == TRANSACTION


def _without_marker(lines: list[str]) -> list[str]:
    """A transaction's cell with a text in place of its first line, which is no Python."""
    if lines and _is_transaction("".join(lines)):
        at = next(at for at, line in enumerate(lines) if line.strip())
        return [*lines[:at], f"{_MARK!r}\n", *lines[at + 1 :]]
    return lines


def _misplaced(line: str, cell: str) -> None:
    """%%transaction: undo a cell when it raises. It stands alone in the first line of a cell."""
    raise Misused(f"{TRANSACTION} stands alone in the first line of a cell")


def _told(lines: list[str]) -> None:
    print("\n".join(lines))


def _tell(message: str) -> None:
    print(message, file=sys.stderr)


@contextmanager
def _telling() -> Iterator[None]:
    """What goes wrong in this block is told, and nothing is held up by it."""
    try:
        yield
    except HoldfastError as error:
        _tell(f"holdfast: {error}")
