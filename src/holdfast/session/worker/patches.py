"""What a session changed in modules: names that its cells assign, and that are not as imported."""

from __future__ import annotations

import ast
import sys
from types import ModuleType
from typing import Any

_ABSENT: Any = object()  # `Any`: stands where a value of any type may stand


class Patches:
    """Modules as they were when the session imported them, and what may have changed since."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, object]] = {}
        self._assigned: set[str] = set()
        self._anything = False  # whether a name was computed, so that any may have changed

    def look_for(self, tree: ast.Module) -> None:
        """Note which attributes a cell may assign or delete."""
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(ctx=ast.Store() | ast.Del()):
                    self._assigned.add(node.attr)
                case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[_, name, *_]):
                    self._named(name)
                case ast.Call(func=ast.Attribute(attr="setattr" | "object"), args=[_, name, *_]):
                    self._named(name)  # `monkeypatch.setattr`, `mock.patch.object`

    def imported(self, name: str) -> None:
        """Remember a module as it is now, if it is new."""
        module = sys.modules.get(name)
        if name not in self._before and issubclass(type(module), ModuleType):
            assert module is not None
            self._before[name] = dict(_names(module))

    def found(self) -> dict[str, dict[str, Any]]:
        """By module: what the session set (`set`), and the names it deleted (`delete`)."""
        changed: dict[str, dict[str, Any]] = {}
        for module, before in self._before.items():
            if module not in sys.modules or module == "__main__":
                continue
            now = _names(sys.modules[module])
            names = {*before, *now} if self._anything else self._assigned
            differ = [n for n in names if now.get(n, _ABSENT) is not before.get(n, _ABSENT)]
            if differ:
                there = {name: now[name] for name in sorted(differ) if name in now}
                changed[module] = {"set": there, "delete": sorted({*differ} - {*there})}
        return changed

    def apply(self, patches: dict[str, dict[str, Any]]) -> None:
        """Make every module what it was when it was imported, but for these changes."""
        for module, changes in self.found().items():
            now, before = _names(sys.modules[module]), self._before[module]
            for name in (*changes["set"], *changes["delete"]):
                _put(now, name, before.get(name, _ABSENT))
        for module, wanted in patches.items():
            self.imported(module)
            if module not in self._before:
                continue
            now = _names(sys.modules[module])
            for name, value in wanted.get("set", {}).items():
                self._assigned.add(name)
                now[name] = value
            for name in wanted.get("delete", ()):
                self._assigned.add(name)
                now.pop(name, None)

    def _named(self, name: ast.expr) -> None:
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            self._assigned.add(name.value)
        elif not isinstance(name, ast.Constant):
            self._anything = True


def _names(module: ModuleType) -> dict[str, Any]:
    found: dict[str, Any] = ModuleType.__getattribute__(module, "__dict__")
    return found


def _put(names: dict[str, Any], name: str, value: Any) -> None:
    if value is _ABSENT:
        names.pop(name, None)
    else:
        names[name] = value
