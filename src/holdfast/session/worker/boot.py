"""The first moments of a worker, for which every session waits: what all its imports go through.

What is imported here, before the rest is, the interpreter has in itself or loads anyway.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from itertools import takewhile

from holdfast.session.worker.finder import Finder

_EXTENSIONS = "typing_extensions"


def boot(module: str, arguments: list[str], path: list[str]) -> None:
    """Run one of the modules beside this one; from then on modules are looked for in `path`."""
    with Uncollected(), Finder():
        _import_msgspec()
        main = import_module(f"{__package__}.{module}").main
    sys.path[:] = path
    main(arguments)


class Unshadowed:
    """Standard modules that are imported inside are those of the library, also where the session
    has others of such names in its folder. Afterwards it finds its own, or has them again."""

    def __enter__(self) -> None:
        found: str | None = sys._stdlib_dir  # type: ignore[attr-defined]  # since Python 3.11
        self._library = found or "/"  # of which all is, where nobody knows
        self._path = sys.path[:]
        self._theirs = {
            name: module
            for name in sys.stdlib_module_names.intersection(sys.modules)
            if self._is_theirs(module := sys.modules[name])
        }
        for name in self._theirs:
            del sys.modules[name]
        self._before = set(sys.modules)
        sys.path.sort(key=self._place)

    def __exit__(self, *raised: object) -> None:
        sys.path[:] = self._path
        for name in sys.stdlib_module_names.intersection(sys.modules) - self._before:
            if self._has_own(name):
                del sys.modules[name]
        sys.modules.update(self._theirs)

    def _is_theirs(self, module: object) -> bool:
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and not file.startswith(self._library)

    def _has_own(self, name: str) -> bool:
        """Whether the session would find another module of that name."""
        first = takewhile(lambda folder: folder != self._library, self._path)
        return any(os.path.exists(f"{folder or '.'}/{name}.py") for folder in first)

    def _place(self, folder: object) -> bool:
        standard = isinstance(folder, str) and folder.endswith("/lib-dynload")
        return folder != self._library and not standard


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
