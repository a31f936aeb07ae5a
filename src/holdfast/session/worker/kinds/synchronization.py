"""Locks as they are, held ones too where only this thread can hold them; threads not at all."""

from __future__ import annotations

import re
import threading
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction

_COUNT = re.compile(r"count=(\d+)")
_Lock, _RLock = type(threading.Lock()), type(threading.RLock())


def lock(held: bool) -> Any:  # `Any`: the type of a lock has no public name
    """A lock, held or free."""
    made = threading.Lock()
    if held:
        made.acquire()
    return made


def rlock(count: int) -> Any:
    """A lock that the session's thread has taken so many times."""
    made = threading.RLock()
    for _ in range(count):
        made.acquire()
    return made


def local() -> threading.local:
    """Data of one thread, still empty."""
    return threading.local()


def set_local(made: threading.local, state: dict[str, object]) -> None:
    made.__dict__.update(state)


def _lock(recorder: Recorder, obj: Any) -> Reduction:
    held = obj.locked()
    if held and recorder.threaded:
        return recorder.hole(obj, "somebody holds it, perhaps another thread")
    return lock, (held,)


def _rlock(recorder: Recorder, obj: Any) -> Reduction:
    found = _COUNT.search(repr(obj))
    count = int(found[1]) if found else 0
    if count and not obj._is_owned():
        return recorder.hole(obj, "another thread holds it")
    return rlock, (count,)


def _local(recorder: Recorder, obj: threading.local) -> Reduction:
    if recorder.threaded:
        recorder.note("of data that belongs to one thread, only the main thread's is kept")
    return local, (), dict(vars(obj)) or None, None, None, set_local


def _thread(recorder: Recorder, obj: threading.Thread) -> Reduction:
    if obj.is_alive():
        return recorder.hole(obj, "a running thread")
    if obj.ident is not None:
        return recorder.hole(obj, "a thread that has ended")
    return recorder.plain(obj)


def reduce_process(recorder: Recorder, obj: object) -> Reduction:
    """A child process cannot be made again."""
    return recorder.hole(obj, "a child process belongs to the process that started it")


EXACT: dict[type, Reduce] = {
    _Lock: _lock,
    _RLock: _rlock,
    threading.local: _local,
}
FAMILIES: list[tuple[type, Reduce]] = [(threading.Thread, _thread)]
