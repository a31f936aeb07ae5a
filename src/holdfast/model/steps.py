"""Named points inside operations that must happen as a whole, so that a test can fail at each one.

Product code calls `step` between two changes. A test installs a function with `watch`: it first
counts the steps of a run that succeeds, then makes the same run fail at step 1, 2, 3 and so on.
Without a watcher a step costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable

Watcher = Callable[[str], None]

_watcher: Watcher | None = None


def step(name: str) -> None:
    """Tell the watcher, if there is one, that the operation has come to this point."""
    if _watcher is not None:
        _watcher(name)


def watch(watcher: Watcher | None) -> None:
    """Call this function at each step from now on; None ends it. What it raises, the step raises.
    Steps are taken in the event loop, in threads of the store, and in workers."""
    global _watcher
    _watcher = watcher
