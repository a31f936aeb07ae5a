"""Fault points: places where the next step of an operation begins, and a test can make it fail.

An operation that must happen as a whole calls `fault_point` before each of its steps. A test first
counts the steps of a run that succeeds, then makes the same run fail at step 1, 2, 3 and so on. So
the steps are counted where they happen, and no list of them is kept by hand. Where nobody listens,
a fault point costs a comparison and one look at a context variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str], None]
_everywhere: Listener | None = None
_here: ContextVar[Listener | None] = ContextVar("fault_point_listener", default=None)


def fault_point(name: str) -> None:
    """Tell the listeners, if there are any, that a step is about to begin. Raises what they do."""
    if _everywhere is not None:
        _everywhere(name)
    listener = _here.get()
    if listener is not None:
        listener(name)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call `listener` at each fault point that this task and all that it starts come to."""
    mark = _here.set(listener)
    try:
        yield
    finally:
        _here.reset(mark)


def listen_everywhere(listener: Listener | None) -> None:
    """Call `listener` at each fault point of this process, whichever thread comes to it; None
    ends that. Workers of sessions, which run one cell after the other, are tested with it."""
    global _everywhere
    _everywhere = listener
