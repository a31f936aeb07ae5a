"""Classes as their source made them, so that a capture can tell what came later."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

import msgspec

# As `type` itself has it, and the type itself is asked: no user code runs.
_DICT = type.__dict__["__dict__"].__get__
_NAME = type.__dict__["__name__"].__get__
_QUALNAME = type.__dict__["__qualname__"].__get__
_BASES = type.__dict__["__bases__"].__get__


def attributes_of(made: object) -> dict[str, object]:
    """A class's own attributes; nothing for what is no class."""
    return dict(_DICT(made)) if issubclass(type(made), type) else {}


def inner_classes(made: object, within: str = "") -> dict[str, type]:
    """The classes that stand in a class's body, by their way from there."""
    found: dict[str, type] = {}
    for name, value in attributes_of(made).items():
        if issubclass(type(value), type) and _QUALNAME(value) == f"{_QUALNAME(made)}.{name}":
            assert isinstance(value, type)
            found[within + name] = value
            found |= inner_classes(value, f"{within}{name}.")
    return found


class Carried(msgspec.Struct, frozen=True):
    """What a function has besides its code."""

    defaults: Any  # `Any`: whatever the user gave it
    options: Any
    attributes: dict[str, Any]
    closure: tuple[Any, ...]

    @classmethod
    def by(cls, function: FunctionType) -> Carried:
        closure = tuple(_contents(cell) for cell in function.__closure__ or ())
        attributes = dict(vars(function))
        return cls(function.__defaults__, function.__kwdefaults__, attributes, closure)


EMPTY = object()  # the content of a cell that has none


def _contents(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def functions_of(attributes: dict[str, Any]) -> dict[str, FunctionType]:
    """The functions in a class: its methods, and those inside static ones and properties."""
    found: dict[str, object] = {}
    for name, value in attributes.items():
        kind = type(value)
        if kind is FunctionType:
            found[name] = value
        elif kind is staticmethod or kind is classmethod:
            found[name] = value.__func__
        elif kind is property:
            found |= {f"{name}.{each}": getattr(value, each) for each in ("fget", "fset", "fdel")}
        elif kind is functools.cached_property:
            found[f"{name}.func"] = value.func
    return {name: value for name, value in found.items() if type(value) is FunctionType}


class Snapshot(msgspec.Struct, frozen=True):
    """A class at one moment: its attributes, what its methods carry with them, and the rest."""

    attributes: dict[str, object]
    methods: dict[str, Carried]
    names: tuple[str, str]
    bases: tuple[type, ...]
    annotations: dict[str, object]
    dispatching: dict[str, int]  # how many types a method by `singledispatchmethod` knows

    @classmethod
    def of(cls, made: object) -> Snapshot:
        attributes = attributes_of(made)
        methods = {n: Carried.by(each) for n, each in functions_of(attributes).items()}
        annotations = attributes.get("__annotations__")
        return cls(
            attributes,
            methods,
            (_NAME(made), _QUALNAME(made)) if attributes else ("", ""),
            _BASES(made) if attributes else (),
            dict(annotations) if type(annotations) is dict else {},
            {name: known for name, value in attributes.items() if (known := dispatched(value))},
        )


def dispatched(value: Any) -> int:
    """How many types a method by `singledispatchmethod` knows; 0 for anything else."""
    return len(value.dispatcher.registry) if type(value) is functools.singledispatchmethod else 0


def home(
    function: FunctionType,
    definitions: Iterable[object],
    snapshots: Mapping[int, Mapping[str, Snapshot]],
) -> tuple[type, str] | None:
    """The class whose source makes a function, if it still has it, and its name there (as
    `functions_of` has it)."""
    first, _, path = function.__qualname__.partition(".")
    inner, _, name = path.rpartition(".")
    if not name or "<locals>" in path:
        return None
    for made in definitions:
        if not issubclass(type(made), type) or _NAME(made) != first:
            continue
        snapshot = snapshots.get(id(made), {}).get(inner)
        cls = made if not inner else inner_classes(made).get(inner)
        now = attributes_of(cls).get(name)
        if snapshot is None or now is not snapshot.attributes.get(name):
            continue
        for each, found in functions_of({name: now}).items():
            if found is function:
                assert isinstance(cls, type)
                return cls, each
    return None


def wrapper(
    value: object, find: Callable[[FunctionType], tuple[type, str] | None]
) -> tuple[type, str] | None:
    """The same of a property, or a static or class method; `find` does it for functions."""
    for function in functions_of({"": value}).values():
        found = find(function)
        if found is not None:
            cls, name = found[0], found[1].partition(".")[0]
            if attributes_of(cls).get(name) is value:
                return cls, name
    return None
