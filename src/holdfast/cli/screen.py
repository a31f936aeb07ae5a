"""What a person sees of a script that runs: its text and its questions, above a bar.

The text goes out as the script wrote it, at once. The bar is taken away for it, and comes back
below it as soon as the line is ended.
"""

from __future__ import annotations

import asyncio
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

    from holdfast.session.result import Prompt

_REST = 0.05  # seconds without the bar after a line: a script that writes much is not slowed down


class Screen:
    """Standard output, standard error and standard input of a script, and how far it is."""

    def __init__(self, total: int, quiet: bool) -> None:
        """With `quiet` all text goes to stderr, and there is no bar."""
        self._quiet = quiet
        self._bar = None if quiet else _bar(total)
        self._open = False  # whether the terminal's last line is not ended
        self._back: asyncio.TimerHandle | None = None  # the bar's return

    @contextmanager
    def watched(self) -> Iterator[None]:
        """There is a bar while this is entered, where a person watches."""
        self._show()
        try:
            yield
        finally:
            self._hide()

    def advance(self, done: int, title: str) -> None:
        """So many cells are done, and this is the one that runs."""
        if self._bar is not None:
            for task in self._bar.task_ids:
                self._bar.update(task, completed=done, description=title[:40])

    def write(self, text: str, stream: str) -> None:
        into = sys.stderr if stream == "stderr" or self._quiet else sys.stdout
        if self._bar is None or not into.isatty():  # a pipe has no bar in its way
            _put(into, text)
        elif text:
            self._hide()
            _put(into, text)
            self._line(ended=text.endswith("\n"))

    async def ask(self, prompt: str) -> str | None:
        """The script's `input()`, answered on our stdin; None at its end."""
        self._hide()
        self._line(ended=False)
        _put(sys.stderr if self._quiet else sys.stdout, prompt)
        try:
            with _unseen(prompt):
                line = await _line_of(sys.stdin)
        finally:
            self._line(ended=True)
        return line.removesuffix("\n") if line else None

    # -- the bar -------------------------------------------------------------------------

    def _line(self, ended: bool) -> None:
        self._open = not ended
        if ended and self._bar is not None and self._back is None:
            self._back = asyncio.get_running_loop().call_later(_REST, self._show)

    def _show(self) -> None:
        self._back = None
        if self._bar is not None and not self._open:
            self._bar.start()

    def _hide(self) -> None:
        if self._back is not None:
            self._back.cancel()
            self._back = None
        if self._bar is not None:
            self._bar.stop()


def _bar(total: int) -> Progress | None:
    """None where nobody watches, or the terminal cannot take a line away again."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_interactive:
        return None
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        redirect_stdout=False,  # it would end the line at every write, and fold long ones
        redirect_stderr=False,
    )
    bar.add_task("", total=total)
    return bar


def _put(into: TextIO, text: str) -> None:
    into.write(text)
    into.flush()


@contextmanager
def _unseen(prompt: str | Prompt) -> Iterator[None]:
    """What answers `getpass()` is not shown while it is typed."""
    if not getattr(prompt, "password", False) or not sys.stdin.isatty():
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    during = termios.tcgetattr(fd)
    during[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSADRAIN, during)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        _put(sys.stdout, "\n")  # of the Enter that was not shown either


async def _line_of(stream: TextIO | None) -> str:
    """A line, while the loop goes on; empty at the end."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    if stream is None:
        return ""

    def read() -> None:
        if not line.done():
            line.set_result(stream.readline())

    try:
        loop.add_reader(stream, read)
    except (OSError, ValueError):  # a file, which is always ready
        return stream.readline()
    try:
        return await line
    finally:
        loop.remove_reader(stream)
