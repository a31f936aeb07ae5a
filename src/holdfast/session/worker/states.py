"""What the source of a class does not say: attributes that came or changed after it ran, and
classes that were registered with it (`ABC.register`)."""

from __future__ import annotations

import abc
import enum
import functools
import sys
from collections.abc import Callable, Container
from types import FunctionType

from holdfast.model.secrets import USUAL, Rule
from holdfast.session.worker.definitions import Event
from holdfast.session.worker.kinds.classes import member_state
from holdfast.session.worker.secrets import defaults, without
from holdfast.session.worker.sharing import changeable
from holdfast.session.worker.snapshots import (
    EMPTY,
    Carried,
    Snapshot,
    attributes_of,
    dispatched,
    functions_of,
    home,
    inner_classes,
    wrapper,
)
from holdfast.session.worker.texts import type_module

# Made by the interpreter or by `abc` and `copyreg` for their own use.
_OWN = {"__dict__", "__weakref__", "_abc_impl", "__slotnames__", "__abstractmethods__"}
_ABSENT = object()
_CACHE = type(functools.lru_cache(len))


def class_state(
    cls: type, event: Event, named: Container[int] = frozenset(), rule: Rule = USUAL
) -> dict[str, object]:
    """What to change after the class has been executed again, and in the classes inside it.

    `named` are ids of properties that have names of their own: they stay the same, whether the
    class's source makes them or only uses them.
    """

    def used(value: object) -> bool:
        snapshots = {id(cls): event.snapshots}
        return id(value) in named and not wrapper(value, lambda f: home(f, [cls], snapshots))

    state = _changes(cls, event.snapshots[""], used, rule)
    inner = {
        path: changes
        for path, each in inner_classes(cls).items()
        if (found := event.snapshots.get(path)) is not None
        and (changes := _changes(each, found, used, rule))
    }
    return {**state, "inner": inner} if inner else state


def _changes(
    cls: type, snapshot: Snapshot, used: Callable[[object], bool], rule: Rule
) -> dict[str, object]:
    """Attributes to set and to delete. `used` says what has to come from elsewhere."""
    now, before = attributes_of(cls), snapshot.attributes
    if issubclass(type(cls), enum.EnumMeta):
        kept: dict[str, object] = {"members": member_state(cls), "set": _added(now, before)}
        return {name: value for name, value in kept.items() if value}
    inner = set(map(id, inner_classes(cls).values()))
    changed: dict[str, object] = {}
    for name, value in now.items():
        if name in _OWN:
            continue
        same = value is before.get(name, _ABSENT) and not _registers(name, value, snapshot)
        may_differ = used(value) or _may_have_changed(name, value)
        if not same or (id(value) not in inner and may_differ):
            changed[name] = value
    changed |= _renamed(cls, now, snapshot)
    deleted = [name for name in before if name not in now and name not in _OWN]
    methods: dict[str, object] = {}
    closures: dict[str, object] = {}
    for name, method in functions_of(now).items():
        if name.partition(".")[0] in changed:
            continue
        carried, known = Carried.by(method), snapshot.methods.get(name)
        if _has_state(carried, known):
            methods[name] = (defaults(rule, method), carried.options, carried.attributes)
        cells = _cells(method, carried, known, rule)
        if cells:
            closures[name] = cells
    bases = cls.__bases__ if cls.__bases__ != snapshot.bases else ()
    state: dict[str, object] = {"bases": bases, "set": changed, "delete": deleted}
    state |= {"methods": methods, "closures": closures, "register": _registered(cls)}
    return {name: value for name, value in state.items() if value}


def _registers(name: str, value: object, snapshot: Snapshot) -> bool:
    """Whether a method got to know more types since."""
    return dispatched(value) != snapshot.dispatching.get(name, 0)


def _renamed(cls: type, now: dict[str, object], snapshot: Snapshot) -> dict[str, object]:
    """What is not, or not only, in a class's own dict."""
    found: dict[str, object] = {}
    if cls.__name__ != snapshot.names[0]:
        found["__name__"] = cls.__name__
    if cls.__qualname__ != snapshot.names[1]:
        found["__qualname__"] = cls.__qualname__
    annotations = now.get("__annotations__")
    if type(annotations) is dict and annotations != snapshot.annotations:
        found["__annotations__"] = annotations
    return found


def _cells(
    method: FunctionType, now: Carried, before: Carried | None, rule: Rule
) -> dict[str, object]:
    """The variables of the function around a method, such as a decorator's, that may differ."""
    known = before.closure if before is not None else ()
    found: dict[str, object] = {}
    for at, name in enumerate(method.__code__.co_freevars):
        value = now.closure[at]
        same = at < len(known) and value is known[at] and not _may_have_changed("", value)
        if not same and name != "__class__" and value is not EMPTY:
            found[name] = without(rule, (name,), (value,))
    return found


def _added(now: dict[str, object], before: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in now.items() if name not in before and name not in _OWN}


def _registered(cls: type) -> list[type]:
    """The classes that an abstract class takes for its own although they do not descend from it."""
    if not isinstance(cls, abc.ABCMeta):
        return []
    # Nothing public tells; what `abc` prints for debugging does.
    references: set[Callable[[], type | None]] = abc._get_dump(cls)[0]  # type: ignore[attr-defined]
    found = [other for reference in references if (other := reference()) is not None]
    return sorted(found, key=lambda other: (type_module(other), other.__qualname__))


def _may_have_changed(name: str, value: object) -> bool:
    """Whether a value may differ inside although it is the object that the source made."""
    if name.startswith("__") and name.endswith("__"):
        return False
    kind = type(value)
    if kind is staticmethod or kind is classmethod:
        return _is_full(value.__func__)  # type: ignore[attr-defined]  # both have it
    if _is_full(value):
        return True
    if hasattr(kind, "__get__") and type_module(kind).partition(".")[0] in sys.stdlib_module_names:
        return False  # functions, properties and the like; a descriptor of the user's has a state
    if type(value) is tuple:
        return any(_may_have_changed("", item) for item in value)
    return not issubclass(kind, type) and changeable(value, set())


def _is_full(value: object) -> bool:
    """Whether it is a function with a cache that holds something."""
    return type(value) is _CACHE and value.cache_info().currsize > 0


def _has_state(now: Carried, before: Carried | None) -> bool:
    """Whether a method carries more than its source gave it."""
    if before is None or now.defaults is not before.defaults or now.options is not before.options:
        return True
    if now.attributes.keys() != before.attributes.keys():
        return True
    if any(value is not before.attributes[name] for name, value in now.attributes.items()):
        return True
    inside = (*(now.defaults or ()), *(now.options or {}).values(), *now.attributes.values())
    return any(_may_have_changed("", value) for value in inside)
