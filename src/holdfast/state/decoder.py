"""The decoder: one pass from JSON back to the values that were saved.

It builds instances only of classes that are known, and trusts nothing that it reads.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

from holdfast.model.errors import Denied, Unsupported
from holdfast.state import arrays, scalars
from holdfast.state.encoder import SECRET, TYPE
from holdfast.state.types import Types, is_named_tuple, name_of

# What comes out is of any type by nature; hence the Any in this module.

_MAPPINGS: dict[str, Callable[[dict[Any, Any]], dict[Any, Any]]] = {
    "dict": dict,
    "ordered_dict": OrderedDict,
    "counter": Counter,
}
_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
# What damaged fields of a typed value lead to, whichever type it is.
_DAMAGE = (KeyError, TypeError, ValueError, ArithmeticError, AttributeError)


# Gives a secret that was left out, by the way to it and whether it is a byte string; None when it
# is not known.
Secret = Callable[[str, bool], str | bytes | None]


def no_secret(name: str, binary: bool) -> None:
    """Nobody knows any secret."""


class MisfitError(Exception):
    """A value that cannot be rebuilt and why, with the way to it, innermost step first."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.path: list[str | int] = []


class Decoder:
    """Decodes one state."""

    def __init__(self, types: Types, secret: Secret = no_secret) -> None:
        self.types = types
        self._secret = secret

    def value(self, packed: Any) -> Any:
        """The value that was saved, None for a secret that is not known; raises MisfitError."""
        if type(packed) is list:
            return self.sequence(packed)
        if type(packed) is not dict:
            return packed
        if TYPE not in packed:
            return self.mapping(packed)
        try:
            return self._typed(packed)
        except ZoneInfoNotFoundError as error:
            raise MisfitError(Unsupported(str(error), hint="install the package tzdata")) from error
        except (Denied, Unsupported, *_DAMAGE) as error:
            raise MisfitError(error) from error

    def mapping(self, packed: dict[str, Any], *, whole: bool = False) -> dict[str, Any]:
        """A dict. A secret that is not known is not in it, unless all keys are needed."""
        found: dict[str, Any] = {}
        key = ""
        try:
            for key, item in packed.items():
                cls = type(item)
                value = self.value(item) if cls is dict or cls is list else item
                if value is not None or item is None or not _is_secret(item) or whole:
                    found[key] = value
        except MisfitError as misfit:
            misfit.path.append(key)
            raise
        return found

    def sequence(self, packed: list[Any]) -> list[Any]:
        found: list[Any] = []
        try:
            for item in packed:
                cls = type(item)
                found.append(self.value(item) if cls is dict or cls is list else item)
        except MisfitError as misfit:
            misfit.path.append(len(found))
            raise
        return found

    def _typed(self, packed: dict[str, Any]) -> Any:
        tag = packed[TYPE]
        if tag in scalars.BY_TAG:
            fields = {name: self.value(item) for name, item in packed.items() if name != TYPE}
            return scalars.BY_TAG[tag].unpack(fields)
        if tag in _COLLECTIONS:
            return _COLLECTIONS[tag](self._items(packed))
        if tag in _MAPPINGS:
            return _MAPPINGS[tag](dict(self._items(packed)))
        match tag:
            case "secret":
                return self._secret(str(packed.get("name", "")), "bytes" in packed)
            case "int":
                return int(packed["hex"], 16)
            case "float":
                return float(packed["value"])
            case "str":
                return packed["escaped"].encode("ascii").decode("unicode_escape")
            case "deque":
                return deque(self._items(packed), packed["maxlen"])
            case arrays.ARRAY | arrays.SCALAR:
                return arrays.from_json(packed)
            case "enum" | "dataclass" | "namedtuple" | "custom":
                return self._instance(tag, packed)
            case _:
                raise Unsupported(
                    f"unknown type {tag!r}", hint="a newer Holdfast may have written it"
                )

    def _items(self, packed: dict[str, Any]) -> list[Any]:
        items = packed["items"]
        if type(items) is not list:
            raise TypeError(f"items are a list, not {type(items).__name__}")
        return self.sequence(items)

    def _instance(self, tag: str, packed: dict[str, Any]) -> Any:
        cls: Any = self.types.get(packed["class"])
        if tag == "enum" and issubclass(cls, enum.Enum):
            return cls(packed["value"]) if "value" in packed else _member(cls, packed["name"])
        if tag == "custom":
            custom = self.types.custom(cls)
            if custom is None:
                raise Unsupported(f"{name_of(cls)} was saved by pack=, which is not registered")
            return custom.unpack(self.value(packed["value"]))
        fields = self.mapping(packed["fields"], whole=True)
        if tag == "dataclass" and dataclasses.is_dataclass(cls):
            return _dataclass(cls, fields)
        if tag == "namedtuple" and is_named_tuple(cls):
            return cls(**fields)
        raise Unsupported(f"{name_of(cls)} was saved as a {tag} and is none any more")


class Survey(Decoder):
    """Decodes all that a state holds without building instances of the application's classes.

    For who wants to know whether a state can be read, and does not have its classes.
    """

    def __init__(self) -> None:
        super().__init__(Types(), self._note_secret)
        self.classes: set[str] = set()
        self.secrets: list[str] = []

    def _note_secret(self, name: str, binary: bool) -> None:
        self.secrets.append(name)

    def _instance(self, tag: str, packed: dict[str, Any]) -> Any:
        name = packed["class"]
        if not isinstance(name, str):
            raise TypeError(f"a class is named by text, not by {type(name).__name__}")
        self.classes.add(name)
        if tag == "custom":
            self.value(packed["value"])
        elif tag != "enum":
            self.mapping(packed["fields"], whole=True)
        return object()  # hashable, as members of sets have to be


def _is_secret(packed: Any) -> bool:
    return type(packed) is dict and packed.get(TYPE) == SECRET


def _member(cls: type[enum.Enum], name: str) -> enum.Enum:
    if name not in cls.__members__:
        raise Unsupported(f"{name_of(cls)} has no member {name} any more")
    return cls[name]


def _dataclass(cls: Any, fields: dict[str, Any]) -> Any:
    declared = {field.name: field for field in dataclasses.fields(cls)}
    gone = sorted(fields.keys() - declared.keys())
    if gone:
        raise Unsupported(f"{name_of(cls)} has no field {', '.join(gone)} any more")
    given = {name: item for name, item in fields.items() if declared[name].init}
    try:
        # Through the constructor, so that fields which are newer than the file get defaults.
        made = cls(**given)
    except (TypeError, ValueError) as error:
        raise Unsupported(f"{name_of(cls)} cannot be built from its fields: {error}") from error
    for name, item in fields.items():
        # What __post_init__ computed must not replace what was saved; also when frozen.
        object.__setattr__(made, name, item)
    return made
