"""Fault points: places where the next step of an operation begins, and a test can make it fail.

The steps of an operation are counted where they happen, so that no list of them is kept by hand.
Where nobody listens, a fault point costs one look at a context variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str], None]
_listener: ContextVar[Listener | None] = ContextVar("fault_point_listener", default=None)


def fault_point(name: str) -> None:
    """Tell the listener, if there is one, that a step is about to begin. Raises what it raises."""
    listener = _listener.get()
    if listener is not None:
        listener(name)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call `listener` at each fault point that this task and all that it starts come to."""
    mark = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(mark)
