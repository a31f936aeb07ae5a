"""Progress bars, for a person who watches: nothing is drawn unless stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]


@contextmanager
def bar(title: str, quiet: bool = False) -> Iterator[Progress | None]:
    """A function that takes what is done and the total in bytes; None when nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task(title, total=None)
        yield lambda done, total: drawn.update(task, completed=done, total=total)
