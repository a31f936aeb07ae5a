"""What a session changed in modules and in their classes: names that its cells assign, and that
are not as they were.

A class is called by its module and its way from there, `pandas.core.frame:DataFrame`.
"""

from __future__ import annotations

import ast
import sys
from types import ModuleType
from typing import Any

# As `type` itself has them.
_DICT = type.__dict__["__dict__"].__get__
_QUALNAME = type.__dict__["__qualname__"].__get__
_ABSENT: Any = object()  # `Any`: stands where a value of any type may stand


class Patches:
    """Modules as they were when the session imported them, and what may have changed since."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, object]] = {}
        self._assigned: set[str] = set()
        self._owners: set[tuple[str, ...]] = set()  # `a.b` of each `a.b.c = ...`
        self._anything = False  # whether a name was computed, so that any may have changed

    def look_for(self, tree: ast.Module) -> None:
        """Note which attributes a cell may assign or delete."""
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(ctx=ast.Store() | ast.Del()):
                    self._assigned.add(node.attr)
                    self._owners.add(_dotted(node.value))
                case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[_, name, *_]):
                    self._named(name)
                case ast.Call(func=ast.Attribute(attr="setattr" | "object"), args=[_, name, *_]):
                    self._named(name)  # `monkeypatch.setattr`, `mock.patch.object`

    def look_at(self, namespace: dict[str, object]) -> None:
        """Remember the modules and classes of libraries that cells may change, before they do."""
        for path in self._owners:
            name = _name_of(_owner(path, namespace))
            if name is not None:
                self.imported(name)

    def imported(self, name: str) -> None:
        """Remember a module, or a class of one, as it is now, if it is new."""
        if name not in self._before and (there := _place(name)) is not None:
            self._before[name] = dict(_names(there))

    def found(self) -> dict[str, dict[str, Any]]:
        """By module: what the session set (`set`), and the names it deleted (`delete`)."""
        changed: dict[str, dict[str, Any]] = {}
        for module, before in self._before.items():
            place = None if module == "__main__" else _place(module)
            if place is None:
                continue
            now = _names(place)
            names = {*before, *now} if self._anything else self._assigned
            differ = [n for n in names if now.get(n, _ABSENT) is not before.get(n, _ABSENT)]
            if differ:
                there = {name: now[name] for name in sorted(differ) if name in now}
                changed[module] = {"set": there, "delete": sorted({*differ} - {*there})}
        return changed

    def apply(self, patches: dict[str, dict[str, Any]]) -> None:
        """Make every module what it was when it was imported, but for these changes."""
        for module, changes in self.found().items():
            place, before = _place(module), self._before[module]
            for name in (*changes["set"], *changes["delete"]):
                _put(place, name, before.get(name, _ABSENT))
        for module, wanted in patches.items():
            self.imported(module)
            if module not in self._before:
                continue
            gone = dict.fromkeys(wanted.get("delete", ()), _ABSENT)
            for name, value in (wanted.get("set", {}) | gone).items():
                self._assigned.add(name)
                _put(_place(module), name, value)

    def _named(self, name: ast.expr) -> None:
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            self._assigned.add(name.value)
        elif not isinstance(name, ast.Constant):
            self._anything = True


def _dotted(node: ast.expr) -> tuple[str, ...]:
    """`a.b.c` as its names; nothing for what is no such thing."""
    match node:
        case ast.Name():
            return (node.id,)
        case ast.Attribute():
            within = _dotted(node.value)
            return (*within, node.attr) if within else ()
    return ()


def _owner(path: tuple[str, ...], namespace: dict[str, object]) -> object:
    """The module or class that a path leads to; no user code is asked."""
    names: Any = namespace
    found: object = None
    for step in path:
        found = names.get(step)
        if not issubclass(type(found), ModuleType | type):
            return None
        names = _names(found)
    return found


def _name_of(found: object) -> str | None:
    """What a library's module or class is found by again; None for the session's own."""
    if issubclass(type(found), ModuleType):
        name = _names(found).get("__name__")
    elif issubclass(type(found), type):
        name = f"{_names(found).get('__module__')}:{_QUALNAME(found)}"
    else:
        return None
    own = type(name) is not str or name.partition(":")[0] == "__main__"
    return None if own or _place(name) is not found else name


def _place(name: str) -> Any:
    """The module or class of that name, if it is there."""
    module, _, path = name.partition(":")
    found: object = sys.modules.get(module)
    for step in path.split(".") if path else ():
        found = _names(found).get(step) if issubclass(type(found), ModuleType | type) else None
    return found if issubclass(type(found), ModuleType | type) else None


def _names(place: Any) -> Any:
    """The names of a module, or of a class, without asking its metaclass."""
    if issubclass(type(place), type):
        return _DICT(place)
    return ModuleType.__getattribute__(place, "__dict__")


def _put(place: Any, name: str, value: Any) -> None:
    if issubclass(type(place), type):
        if value is not _ABSENT:
            type.__setattr__(place, name, value)
        elif name in _names(place):
            type.__delattr__(place, name)
    elif value is _ABSENT:
        _names(place).pop(name, None)
    else:
        _names(place)[name] = value
