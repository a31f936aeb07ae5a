"""Worker threads for hashing and compressing; the C libraries release the interpreter lock."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from itertools import chain, islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_lock = threading.Lock()
_pools: dict[str, ThreadPoolExecutor] = {}


def count() -> int:
    """How many threads are worth having here."""
    return max(2, min(16, len(os.sched_getaffinity(0))))


def compute() -> Executor:
    """For work that burns processor time."""
    return _pool("compute", count())


def in_order(
    task: Callable[[Item], Result], items: Iterable[Item], ahead: int, few: int = 1
) -> Generator[Result]:
    """What `task` makes of each item, in order, by several threads that are at most `ahead` of who
    takes it; by this thread when there are only a `few`. However it ends, nothing is left running.
    """
    items = iter(items)
    running: deque[Future[Result]] = deque()
    try:
        first = [*islice(items, few + 1)]
        if len(first) <= few:
            # Waking a thread up takes longer than most small things.
            yield from map(task, first)
            return
        for item in chain(first, items):
            running.append(compute().submit(task, item))
            if len(running) > ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        wait(running)


def writing(transfers: int) -> Executor:
    """For waiting on the disk or the network, apart from `compute` so that neither waits for the
    other."""
    return _pool(f"writing-{transfers}", transfers)


def laying() -> Executor:
    """For large writes that go past the file cache, which wait for the disk itself."""
    return _pool("laying", 2)


def fetching() -> Executor:
    """For waiting on many small answers."""
    return _pool("fetching", 16)


def background() -> Executor:
    """For verifying what is in use already: one thread, so that it stays out of the way."""
    return _pool("background", 1)


def _pool(name: str, size: int) -> ThreadPoolExecutor:
    with _lock:
        if name not in _pools:
            _pools[name] = ThreadPoolExecutor(size, thread_name_prefix=f"holdfast-{name}")
        return _pools[name]


def _begin_anew() -> None:
    """Threads do not survive a fork, and the lock may have been held by one of them."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_begin_anew)
