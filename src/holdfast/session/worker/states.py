"""What the source of a class does not say: attributes that came or changed after it ran."""

from __future__ import annotations

import enum
from types import FunctionType

from holdfast.session.worker.definitions import attributes_of
from holdfast.session.worker.grouping import changeable

# Made by the interpreter or by `abc` and `copyreg` for their own use.
_OWN = {"__dict__", "__weakref__", "_abc_impl", "__slotnames__", "__abstractmethods__"}
_ABSENT = object()


def class_state(cls: type, before: dict[str, object]) -> dict[str, object]:
    """Attributes to set and to delete after the class has been executed again."""
    if issubclass(type(cls), enum.EnumMeta):
        return {}
    now = attributes_of(cls)
    changed: dict[str, object] = {}
    for name, value in now.items():
        if name in _OWN:
            continue
        if value is not before.get(name, _ABSENT) or _may_have_changed(name, value):
            changed[name] = value
    deleted = [name for name in before if name not in now and name not in _OWN]
    methods = {
        name: (value.__defaults__, value.__kwdefaults__, dict(vars(value)))
        for name, value in now.items()
        if name not in changed and type(value) is FunctionType and _has_state(value)
    }
    state: dict[str, object] = {"set": changed, "delete": deleted, "methods": methods}
    return {name: value for name, value in state.items() if value}


def set_class(cls: type, state: dict[str, object]) -> list[str]:
    """Apply a class's state; returns what could not be set, with the reason."""
    problems: list[str] = []
    changed, deleted, methods = (state.get(key) for key in ("set", "delete", "methods"))
    for name, value in changed.items() if isinstance(changed, dict) else ():
        try:
            setattr(cls, name, value)
        except (AttributeError, TypeError) as error:
            problems.append(f"{name}: {error}")
    for name in deleted if isinstance(deleted, list) else ():
        try:
            delattr(cls, name)
        except AttributeError as error:
            problems.append(f"{name}: {error}")
    for name, parts in methods.items() if isinstance(methods, dict) else ():
        method = vars(cls).get(name)
        if isinstance(method, FunctionType):
            method.__defaults__, method.__kwdefaults__, attributes = parts
            method.__dict__.update(attributes)
    return problems


def _may_have_changed(name: str, value: object) -> bool:
    """Whether a value may differ inside although it is the object that the source made."""
    if name.startswith("__") and name.endswith("__"):
        return False
    if hasattr(type(value), "__get__"):
        return False  # methods, properties and other descriptors
    if type(value) is tuple:
        return any(_may_have_changed("", item) for item in value)
    return changeable(value, set())


def _has_state(method: FunctionType) -> bool:
    defaults = (*(method.__defaults__ or ()), *(method.__kwdefaults__ or {}).values())
    return bool(vars(method)) or any(_may_have_changed("", value) for value in defaults)
