"""Work that is carried out to its end, although the task that asked for it is cancelled.

A change and the record of it belong together: a file system that is mounted and the note that it
is, a sandbox that stands still and the word that lets it go on, a lease and whoever holds it. A
task that is cancelled between the two (a request when its server stops, or at its time limit) would
leave a change that nobody takes back. So:

- `whole` runs a coroutine to its end. A caller that was cancelled meanwhile is told then, and what
  the work gave is handed to `undo`, because nobody else will ever know of it.
- `in_thread` does the same for a function in a thread, which cannot be stopped anyway: nobody
  clears away what it still works on.

No module of this package starts a thread in another way. What several steps have changed is taken
back with `contextlib.AsyncExitStack`: each step that changes something pushes how to take it back,
and `pop_all` says that everything has come to be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from holdfast.model.fault_points import fault_point

T = TypeVar("T")
P = ParamSpec("P")
Work = Coroutine[object, object, T]


async def whole(work: Work[T], undo: Callable[[T], Work[object]] | None = None) -> T:
    """What the work gives, or raises. Cancelled, however often, it raises that, but not before the
    work is done, and what it gave is undone."""
    return await _to_its_end(task_of(work), undo)


def task_of(work: Work[T]) -> asyncio.Task[T]:
    """A task that is part of this one, and has its name."""
    mine = asyncio.current_task()
    return asyncio.create_task(work, name=None if mine is None else mine.get_name())


async def in_thread(do: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread. Cancelled, it raises that when the function has returned."""
    return await in_thread_or_undone(None, do, *args, **kwargs)


async def in_thread_or_undone(
    undo: Callable[[T], object] | None, do: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """The same for a function whose result is to be given back: cancelled, it calls `undo` with
    it, in a thread too."""
    return await run_in(None, undo, partial(do, *args, **kwargs))


async def run_in(
    executor: Executor | None, undo: Callable[[T], object] | None, do: Callable[[], T]
) -> T:
    """The same in a thread of an executor."""
    fault_point(_name(do))
    loop = asyncio.get_running_loop()
    doing = loop.run_in_executor(executor, copy_context().run, do)

    async def undone(result: T) -> None:
        if undo is not None:
            await loop.run_in_executor(None, undo, result)

    return await _to_its_end(doing, undone)


async def _to_its_end(doing: asyncio.Future[T], undo: Callable[[T], Work[object]] | None) -> T:
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait((doing,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return doing.result()
    # Whoever would have been told of a failure has gone.
    if not doing.cancelled() and doing.exception() is None and undo is not None:
        await _to_its_end(task_of(undo(doing.result())), None)
    raise cancelled


def _name(do: Callable[[], object]) -> str:
    """What a step is called: a function and where it is from."""
    inner: object = do
    while isinstance(inner, partial):
        inner = inner.func
    return f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', inner)}"
