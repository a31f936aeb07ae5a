"""Things of which a process has one: made on first use, by one of its threads only.

A fork has none of its parent's threads, so what consists of threads is made anew there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def once(make: Callable[[], _T]) -> Callable[[], _T]:
    """A function that makes it at the first call in each process, and gives that one from then."""
    lock = threading.Lock()
    made: dict[int, _T] = {}  # by process

    def get() -> _T:
        with lock:
            me = os.getpid()
            if me not in made:
                made[me] = make()
            return made[me]

    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )
    return get
