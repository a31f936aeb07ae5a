"""Types: which classes may be rebuilt from a file. Nothing is imported because a file names it.

A class is known when it was registered, given to a manager, or put into a state by this
process itself. A file that names any other class is refused.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from holdfast.model.errors import BadInput, Denied

T = TypeVar("T")
# The values of a custom class are whatever its author says; hence the Any.
Pack = Callable[[Any], object]
Unpack = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Custom:
    """How a class that is no dataclass, enum or named tuple becomes plain values and back."""

    pack: Pack
    unpack: Unpack


def name_of(cls: type) -> str:
    """How a file names a class: `package.module:Class`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def is_buildable(cls: type) -> bool:
    """Can it be saved field by field without being told how?"""
    return dataclasses.is_dataclass(cls) or issubclass(cls, enum.Enum) or is_named_tuple(cls)


class Types:
    """A set of classes that may be rebuilt, on top of another such set."""

    def __init__(self, given: Iterable[type] = (), *, below: Types | None = None) -> None:
        self._classes: dict[str, type] = {}
        self._custom: dict[type, Custom] = {}
        self._below = below
        for cls in given:
            self.add(cls)

    def add(self, cls: type, pack: Pack | None = None, unpack: Unpack | None = None) -> None:
        """Allow a class. Other than dataclass, enum or named tuple, say how. Raises BadInput."""
        if not isinstance(cls, type):
            raise BadInput(f"not a class: {cls!r}")
        if (pack is None) != (unpack is None):
            raise BadInput(f"{name_of(cls)}: give both pack and unpack, or neither")
        if pack and unpack:
            self._custom[cls] = Custom(pack, unpack)
        elif not is_buildable(cls):
            raise BadInput(
                f"{name_of(cls)} is no dataclass, enum or named tuple",
                hint="register(cls, pack=..., unpack=...) says how to save it",
            )
        self._classes[name_of(cls)] = cls

    def custom(self, cls: type) -> Custom | None:
        """How this class is packed, when somebody said so."""
        return self._custom.get(cls) or (self._below.custom(cls) if self._below else None)

    def get(self, name: str) -> type:
        """The class of that name; raises Denied when it is not known."""
        cls = self._classes.get(name)
        if cls is not None:
            return cls
        if self._below is not None:
            return self._below.get(name)
        raise Denied(
            f"the type {name} is not registered, so it is not rebuilt",
            hint="pass types=[...] to StateManager, or put @holdfast.state.register on the class",
        )


known = Types()


def register(
    cls: type[T], *, pack: Callable[[T], object] | None = None, unpack: Unpack | None = None
) -> type[T]:
    """Allow a class to be rebuilt on load, in this whole process; also a class decorator."""
    known.add(cls, pack, unpack)
    return cls
