"""The first moments of a worker, for which every session waits: what all its imports go through.

What is imported here, before the rest is, the interpreter has in itself or loads anyway.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from holdfast.session.worker.finder import Finder

_EXTENSIONS = "typing_extensions"


def boot(module: str, arguments: list[str]) -> None:
    """Run one of the modules beside this one."""
    with Uncollected(), Finder():
        _import_msgspec()
        main = import_module(f"{__package__}.{module}").main
    main(arguments)


class Uncollected:
    """Nothing that is made inside becomes garbage: the collector finds nothing there, slowly."""

    def __enter__(self) -> None:
        self._collects = gc.isenabled()
        gc.disable()

    def __exit__(self, *raised: object) -> None:
        grow_old()
        if self._collects:
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
