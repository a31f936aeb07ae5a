"""Modules that cells import inside functions: looked at when they have been loaded, before the
function goes on and changes them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class Loading:
    """Stands in `sys.meta_path` while there is something to wait for."""

    def __init__(self, loaded: Callable[[str], None]) -> None:
        self._loaded = loaded
        self._awaited: set[str] = set()

    def wait_for(self, modules: set[str]) -> None:
        """Say when these have been loaded."""
        self._awaited |= modules
        if self._awaited and self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the others find, and the moment after it has been executed."""
        if name not in self._awaited:
            return None
        self._awaited.discard(name)
        if not self._awaited:
            sys.meta_path.remove(self)
        others = (each for each in list(sys.meta_path) if each is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((each for each in found if each is not None), None)
        loader = spec.loader if spec is not None else None
        # One that is a class serves every module that is built in.
        if loader is not None and not isinstance(loader, type):
            self._follow(name, loader)
        return spec

    def _follow(self, name: str, loader: object) -> None:
        execute: Callable[[ModuleType], None] | None = getattr(loader, "exec_module", None)
        if execute is None or not hasattr(loader, "__dict__"):
            return

        def executed(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            self._loaded(name)

        vars(loader)["exec_module"] = executed
