"""Whether other threads run Python in this process: it is not copied then.

Pools of libraries that only compute do not count.
"""

from __future__ import annotations

import _thread
import os
import threading


class _Inherited:
    """Threads that this process has in its books only: a copy has none of them any more."""

    count = 0

    def note(self) -> None:
        self.count = _thread._count()


_inherited = _Inherited()
os.register_at_fork(after_in_child=_inherited.note)


def alone() -> bool:
    """Whether this is the only thread.

    `threading` does not know those that were started underneath it; `_thread` does not know those
    that came from elsewhere.
    """
    return threading.active_count() == 1 and _thread._count() <= _inherited.count
