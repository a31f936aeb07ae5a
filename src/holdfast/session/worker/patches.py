"""What a session changed in modules and in their classes: names that its cells assign, or that
hold something of its own, and that are not as they were.

A class is called by its module and its way from there, `pandas.core.frame:DataFrame`.
"""

from __future__ import annotations

import abc
import ast
import importlib
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from holdfast.session.worker import own_modules
from holdfast.session.worker.assignments import LEAVING, Assignments, Path
from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.loading import Loading
from holdfast.session.worker.originals import ABSENT as _ABSENT
from holdfast.session.worker.originals import Originals
from holdfast.session.worker.placeholder import Placeholder

# `Any` below: a name may have a value of any type.

# As `type` itself has them.
_DICT = type.__dict__["__dict__"].__get__
_QUALNAME = type.__dict__["__qualname__"].__get__
_CALLED = "a cell calls it; what it leaves in the process is not brought back: call it again"
_INSIDE = "a cell changes what is in it, which is not brought back: change it again"
# By themselves, or in the table of `library_settings.py`; and these kinds:
_KEPT = {
    "sys.path", "sys.modules", "warnings.filters", "nltk.data.path", "dask.config.config",
    "matplotlib.style.library",
}  # fmt: skip
_KEPT_KINDS = {
    ("os", "_Environ"), ("matplotlib", "RcParams"), ("matplotlib.cm", "ColormapRegistry"),
    ("matplotlib.colors", "_ColorMapping"), ("plotly.io._templates", "TemplatesConfig"),
    ("jax._src.config", "Config"), ("networkx.utils.configs", "NetworkXConfig"),
}  # fmt: skip
_OF_MODULES = {"__builtins__", "__warningregistry__", "__annotations__", "__path__", "__spec__"}
_LATE = {"_abc_impl", "__abstractmethods__", "__slotnames__", "__doc__"}  # set when first needed


class _Known(msgspec.Struct, frozen=True):
    """A module or a class as it was."""

    place: Any
    names: Any  # as they are now: a module's dict, or a view of a class's
    before: dict[str, object]
    registered: frozenset[type]  # with an abstract class
    contents: dict[str, bytes | None]  # of values that may change inside, in the user's own modules


class Patches:
    """Modules as they were when the session imported them, and what may have changed since."""

    def __init__(self, originals: Originals | None = None) -> None:
        self._originals = originals or Originals()
        # While the worker is at work: by module of the library, what the session has in it.
        self._theirs: dict[str, dict[str, Any]] | None = None
        self._changes: dict[str, dict[str, Any]] | None = None  # what was found at its beginning
        # Modules of the library as they were when a cell was to change any of them.
        self._library: dict[str, dict[str, Any]] = {}
        self._known: dict[str, _Known] = {}
        self._aimed: set[str] = set()  # those that a cell names, or that have an assigned name
        self._own: set[str] = set()  # the user's own modules, and classes of theirs
        self._seen = 0  # how many modules were loaded when they were last looked at
        self._assigned = Assignments()
        self._loading: Loading | None = None

    def install(self) -> None:
        """Watch over the whole process."""
        self.imported("builtins")
        self._loading = Loading(self.imported)

    def look_for(self, tree: ast.Module) -> None:
        """Note what a cell may assign or delete, and which modules it will load."""
        before = set(self._assigned.names)
        self._assigned.read(tree)
        absent = {name for name in self._assigned.modules if name not in sys.modules}
        for name in self._assigned.modules - absent:
            self.imported(name)
        if self._loading is not None and absent:
            self._loading.wait_for(absent)
        self._assigned.modules.clear()
        if self._assigned.anywhere:
            for name, module in list(sys.modules.items()):
                if _is_library(name) and name not in self._library and _is_place(module):
                    self._library[name] = dict(_names(module))
        new = self._assigned.names - before
        if new:
            self._aimed |= {n for n, each in self._known.items() if not new.isdisjoint(each.before)}

    def look_at(self, namespace: dict[str, object]) -> None:
        """Remember the modules and classes of libraries that cells may change, before they do."""
        said = self._assigned
        handed = said.handed if said.computed else set()
        for path in said.owners | said.registering | handed:
            name = _name_of(_owner(path, namespace))
            if name is not None:
                self.imported(name)
                self._aimed.add(name)

    def imported(self, name: str) -> None:
        """Remember a module and its classes, or one class, as they are now, if they are new, and
        modules of the user's own that were loaded with it."""
        if len(sys.modules) != self._seen:
            self._look_for_own()
        self._import(name)

    def _look_for_own(self) -> None:
        """Those that were loaded since; the last come last."""
        first = self._seen if self._seen < len(sys.modules) else 0
        self._seen = len(sys.modules)
        for at, (name, module) in enumerate(list(islice(sys.modules.items(), first, None)), first):
            if not issubclass(type(module), ModuleType) or not own_modules.is_own(module):
                continue
            if getattr(getattr(module, "__spec__", None), "_initializing", False):
                self._seen = min(self._seen, at)  # it is just being imported: another time
            else:
                self._import(name)

    def _import(self, name: str) -> None:
        if name in self._known or (there := _place(name)) is None:
            return
        self._remember(name, there)
        if ":" in name:
            return
        self._aimed.add(name)
        package = name.partition(".")[0]
        for value in list(_names(there).values()):
            called = _name_of(value) if issubclass(type(value), type) else None
            if called is not None and called.partition(":")[0].partition(".")[0] == package:
                self._remember(called, value)

    def _remember(self, name: str, place: Any) -> None:
        if name not in self._known:
            names = _names(place)
            contents: dict[str, bytes | None] = {}
            module = sys.modules.get(name.partition(":")[0])
            if issubclass(type(module), ModuleType) and own_modules.is_own(module):
                self._own.add(name)
                contents = {
                    each: own_modules.content(value)
                    for each, value in list(names.items())
                    if own_modules.is_data(each, value)
                }
            before = dict(names)
            self._known[name] = _Known(place, names, before, _registered(place), contents)
            if not self._assigned.names.isdisjoint(names):
                self._aimed.add(name)

    def found(self, namespace: Mapping[str, object] | None = None) -> dict[str, dict[str, Any]]:
        """By module: what the session set (`set`), the names it deleted (`delete`), and classes
        that it registered with an abstract one (`register`).

        A value of the user's own modules that is also in `namespace` is among them: it is to be
        one object afterwards, too."""
        changed = self._found() if self._changes is None else self._changes
        return self._with_held(changed, namespace) if namespace and self._own else changed

    def _found(self) -> dict[str, dict[str, Any]]:
        """The changes, without a look at variables."""
        changed: dict[str, dict[str, Any]] = {}
        if len(sys.modules) != self._seen:
            self._look_for_own()
        aimed = self._aimed | self._own if self._own else self._aimed
        for name, known in self._known.items():
            if name not in aimed and len(known.names) == len(known.before):
                continue
            if name == "__main__" or _place(name) is not known.place:
                continue
            names = self._names_of(name, known)
            differ = self._differ(name, known, names)
            if name in self._own:
                differ |= self._changed_inside(known)
            there = {each: names[each] for each in sorted(differ) if each in names}
            found: dict[str, Any] = {"set": there, "delete": sorted(differ - there.keys())}
            if self._assigned.registering:
                more = _registered(known.place) - known.registered
                found |= {"register": sorted(more, key=_QUALNAME)} if more else {}
            if any(found.values()):
                changed[name] = found
        return changed

    def may_touch(self, names: frozenset[str]) -> bool:
        """Whether cells may have changed one of these in some module."""
        said = self._assigned
        return said.computed or said.anywhere or not said.names.isdisjoint(names)

    def aside(self) -> Aside:
        """A block in which modules of the library have what they had before the session changed
        them, for the worker's own work. To everything here they are what the session made them."""
        return Aside(self)

    def lay_aside(self) -> bool:
        """Begin such a block; False in the middle of one."""
        if self._theirs is not None:
            return False
        theirs: dict[str, dict[str, Any]] = {}
        found = self.found()
        for name, changes in found.items():
            if _is_library(name):
                known = self._known[name]
                changed = (*changes["set"], *changes["delete"])
                # As found: one module may be known by two names.
                theirs[name] = {each: changes["set"].get(each, _ABSENT) for each in changed}
                for each in changed:
                    _put(known.place, each, known.before.get(each, _ABSENT))
        for name, before in self._library.items():
            place = _place(name)
            names = _names(place) if place is not None else {}
            for each, value in before.items():
                now = names.get(each, _ABSENT)
                if now is not value and now is not _ABSENT and callable(value):
                    theirs.setdefault(name, {})[each] = now
                    _put(place, each, value)
        self._theirs, self._changes = theirs, found
        return True

    def give_back(self) -> None:
        """End it: the modules have again what the session, or a restore, wants in them."""
        theirs, self._theirs, self._changes = self._theirs or {}, None, None
        for name, names in theirs.items():
            place = _place(name)
            for each, value in names.items() if place is not None else ():
                _put(place, each, value)

    def _names_of(self, name: str, known: _Known) -> Any:
        """The names of a module or a class, as the session has them."""
        theirs = self._originals.theirs if name == "builtins" else (self._theirs or {}).get(name)
        if not theirs:
            return known.names
        merged = {**known.names, **theirs}
        return {each: value for each, value in merged.items() if value is not _ABSENT}

    def _set(self, name: str, each: str, value: Any) -> None:
        """Give a module or a class of the session another value of a name, or take one away."""
        known = self._known[name]
        if name == "builtins":
            self._originals.put(each, value)
        elif self._theirs is None or not _is_library(name):
            _put(known.place, each, value)
        elif value is known.before.get(each, _ABSENT):
            self._theirs.get(name, {}).pop(each, None)
        else:
            self._theirs.setdefault(name, {})[each] = value

    def _with_held(
        self, changed: dict[str, dict[str, Any]], namespace: Mapping[str, object]
    ) -> dict[str, dict[str, Any]]:
        """The changes, and values of the user's own modules that a variable has, too."""
        held = set(map(id, namespace.values()))
        found = dict(changed)
        for name in self._own:
            known, there = self._known[name], found.get(name, {"set": {}, "delete": []})
            more = {
                each: known.names[each]
                for each in known.contents
                if each in known.names and id(known.names[each]) in held
            }
            if more.keys() - there["set"].keys() and _place(name) is known.place:
                found[name] = {**there, "set": {**more, **there["set"]}}
        return found

    def _changed_inside(self, known: _Known) -> set[str]:
        """Values of the user's own modules that are the same objects, and hold something else."""
        found: set[str] = set()
        for name, before in known.contents.items():
            value = known.names.get(name, _ABSENT)
            same = value is known.before[name]  # another object is told already
            if same and before and own_modules.content(value) != before:
                found.add(name)
        return found

    def _differ(self, name: str, known: _Known, names: Any) -> set[str]:
        """The names that are not as they were, and that the session may have changed."""
        now, before = names, known.before
        computed = name in self._own or (name in self._aimed and self._assigned.computed)
        assigned = self._assigned.names
        every: set[str] = assigned
        if computed:
            every = {*before, *now} - _LATE - _OF_MODULES
        elif len(now) != len(before):
            every = every | ((now.keys() ^ before.keys()) - _LATE)
        return {
            each
            for each in every
            if now.get(each, _ABSENT) is not before.get(each, _ABSENT)
            and (each in assigned or computed or _is_own(now.get(each)))
            and not _is_ours(now.get(each))
            and not _is_loaded(f"{name}.{each}", now.get(each))
        }

    def left(self, namespace: dict[str, object]) -> dict[str, str]:
        """What cells do to libraries and the process that is not brought back, and how."""
        found: dict[str, str] = {}
        for path in self._assigned.leaving:
            module, name = _function(path, namespace)
            if name in LEAVING.get(module, ()):
                found[f"{module}.{name}"] = _CALLED
        for path in self._assigned.inside:
            owner = _owner(path[:-1], namespace)
            name = f"{_name_of(owner) or ''}.{path[-1]}"
            value = _names(owner).get(path[-1]) if owner is not None else None
            kind = type(value)
            kept = name in _KEPT or (kind.__module__, kind.__name__) in _KEPT_KINDS
            if name[0] != "." and value is not None and not kept and not _is_place(value):
                found[name] = _INSIDE
        return dict(sorted(found.items()))

    def _before(self, name: str, each: str, again: dict[int, tuple[Any, Any]]) -> Any:
        """What a name of a module stood for when it was imported, as that was then. The object
        that it is now is left alone: a restore that fails needs it as it is. `again` has what
        was made so far."""
        known = self._known[name]
        value, data = known.before.get(each, _ABSENT), known.contents.get(each)
        if data and own_modules.content(value) != data:
            _, known.before[each] = again.setdefault(id(value), (value, own_modules.read(data)))
            value = known.before[each]
        return value

    def apply(self, patches: dict[str, dict[str, Any]]) -> dict[str, str]:
        """Make every module what it was when it was imported, but for these changes. Says of which
        modules that could not be done, and why."""
        failed: dict[str, str] = {}
        again: dict[int, tuple[Any, Any]] = {}
        found = self.found()
        self._changes = None  # from here on it is another
        for name, changes in found.items():
            known = self._known[name]
            for each in (*changes["set"], *changes["delete"]):
                self._set(name, each, self._before(name, each, again))
            if changes.get("register"):
                abc._reset_registry(known.place)  # type: ignore[attr-defined]  # nothing public
                for other in known.registered:
                    known.place.register(other)
        for name, wanted in patches.items():
            try:
                importlib.import_module(name.partition(":")[0])
            except Interrupted:
                raise
            except BaseException as error:  # noqa: BLE001  # a library may fail in any way at import
                failed[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
                continue
            self.imported(name)
            if name not in self._known:
                failed[name] = "it is not there any more"
                continue
            self._aimed.add(name)
            place = self._known[name].place
            gone = dict.fromkeys(wanted.get("delete", ()), _ABSENT)
            for each, value in (wanted.get("set", {}) | gone).items():
                if type(value) is Placeholder and each in _names(place):
                    continue  # what its import has made is worth more
                self._assigned.names.add(each)
                self._set(name, each, value)
            for other in wanted.get("register", ()):
                self._assigned.registering.add(())
                place.register(other)
        return failed


class Aside:
    """What `Patches.aside` gives."""

    __slots__ = ("_began", "_patches")

    def __init__(self, patches: Patches) -> None:
        self._patches = patches
        self._began = False

    def __enter__(self) -> None:
        self._began = self._patches.lay_aside()

    def __exit__(self, *raised: object) -> None:
        if self._began:
            self._patches.give_back()


def _is_library(name: str) -> bool:
    """Whether a module is of the standard library, which the worker is made of."""
    own = name == "builtins" or ":" in name  # the one has a way of its own, the others are classes
    return not own and name.partition(".")[0] in sys.stdlib_module_names


def _is_own(value: Any, deep: bool = True) -> bool:
    """Whether something is the session's: a function, a class, or what holds one of them."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        return False
    if kind is FunctionType:
        return bool(value.__module__ == "__main__")
    if issubclass(kind, type):
        return bool(_names(value).get("__module__") == "__main__")
    if _names(kind).get("__module__") == "__main__":
        return True
    inside = [getattr(value, name, None) for name in _WRAPPED.get(kind, ())]
    with suppress(AttributeError):
        inside += object.__getattribute__(value, "__dict__").values()
    return deep and any(_is_own(each, False) for each in inside)


def _is_ours(value: Any) -> bool:
    """Whether it is a function of the worker, such as its `input`."""
    module = getattr(getattr(value, "__func__", None), "__module__", "")
    return type(module) is str and module.startswith("holdfast.")


def _is_loaded(name: str, value: object) -> bool:
    """Whether it is the submodule of that name, which its import put there. Taken away again, it
    would not come back: an import of what is loaded only looks at `sys.modules`."""
    return issubclass(type(value), ModuleType) and sys.modules.get(name) is value


def _is_place(value: object) -> bool:
    return issubclass(type(value), ModuleType | type)


_WRAPPED = {
    staticmethod: ("__func__",), classmethod: ("__func__",), property: ("fget", "fset", "fdel"),
}  # fmt: skip


def _registered(place: Any) -> frozenset[type]:
    """The classes that an abstract class takes for its own."""
    if not issubclass(type(place), abc.ABCMeta):
        return frozenset()
    references = abc._get_dump(place)[0]  # type: ignore[attr-defined]  # nothing public tells
    return frozenset(each for reference in references if (each := reference()) is not None)


def _function(path: Path, namespace: dict[str, object]) -> tuple[str, str]:
    """The module and the name of a function that a cell calls."""
    if len(path) == 1:  # `from atexit import register`
        called: Any = namespace.get(path[0])
        module = getattr(called, "__module__", None) if callable(called) else None
        return str(module or "").lstrip("_"), path[0]
    owner = _owner(path[:-1], namespace)
    if owner is None and len(path) == 2:  # imported inside a function
        owner = sys.modules.get(path[0])
    return str(_names(owner).get("__name__", "")) if owner is not None else "", path[-1]


def _owner(path: tuple[str, ...], namespace: dict[str, object]) -> object:
    """The module or class that a path leads to; no user code is asked."""
    names: Any = namespace
    found: object = None
    for step in path:
        found = names.get(step)
        if not _is_place(found):
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
        found = _names(found).get(step) if _is_place(found) else None
    return found if _is_place(found) else None


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
