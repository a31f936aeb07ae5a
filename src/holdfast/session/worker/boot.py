"""The first moments of a worker, for which every session waits: what all its imports go through.

The interpreter's own modules are all that is imported here before the rest is.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

_EXTENSIONS = "typing_extensions"


def boot(module: str, arguments: list[str]) -> None:
    """Run one of the modules beside this one."""
    with uncollected():
        _import_msgspec()
        main = import_module(f"{__package__}.{module}").main
    main(arguments)


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing that is made inside becomes garbage: the collector finds nothing there, slowly."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        grow_old()
        if collects:
            gc.enable()


def grow_old() -> None:
    """What is there now is not new: left so, the collector would look at all of it first."""
    if gc.get_freeze_count() == 0:  # else the session keeps its own things there
        gc.freeze()
        gc.unfreeze()


def _import_msgspec() -> None:
    """Without `typing_extensions`, which takes longer to load than msgspec itself. It asks there
    for three things that `typing` has as well, since Python 3.11 with the same results; whoever
    imports that module later finds it as it is."""
    if _EXTENSIONS in sys.modules:
        return
    sys.modules[_EXTENSIONS] = None  # type: ignore[assignment]  # not to be found, for a moment
    try:
        import_module("msgspec")
    finally:
        del sys.modules[_EXTENSIONS]
