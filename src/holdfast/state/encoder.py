"""The encoder: one pass from Python values to JSON.

It runs on every value of every checkpoint, so plain values take the shortest way, and the path
to a value is put together only when it is refused.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.state import arrays, scalars
from holdfast.state.types import Types, is_named_tuple, name_of

TYPE = "$type"
# Levels of JSON. Deeper data is a mistake more often than a wish, and exhausts readers' stacks.
MAX_DEPTH = 100
_TYPED_LEVELS = 3  # how many levels of JSON a typed value takes at most
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1  # what JSON readers and the store keep exactly
_AS_IS = frozenset((bool, type(None)))

# What goes in and comes out is of any type by nature; hence the Any in this module.


class RefusalError(Exception):
    """A value that could not come back as it is, with the way to it, innermost step first."""

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint
        self.path: list[str | int] = []


class Encoder:
    """Encodes one state. `classes` are those it met that a file will name."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self.classes: set[type] = set()
        self._around: set[int] = set()  # ids of the containers around the present value
        self._depth = 0

    def value(self, value: Any) -> Any:
        """Any value as JSON; raises RefusalError."""
        cls = type(value)
        if cls in _AS_IS:
            return value
        if cls is str:
            return value if not _has_surrogate(value) else _escaped(value)
        if cls is int:
            return value if _INT_MIN <= value <= _INT_MAX else {TYPE: "int", "hex": hex(value)}
        if cls is float:
            return value if math.isfinite(value) else {TYPE: "float", "value": repr(value)}
        if cls is list:
            return self._inside(value, self.sequence, 1)
        if cls is dict:
            if _has_plain_keys(value):
                return self._inside(value, self.mapping, 1)
            return self._inside(value, self._odd_mapping, _TYPED_LEVELS)
        if cls in scalars.BY_CLASS:
            return self._scalar(value)
        if arrays.handles(value):
            return arrays.to_json(value)
        return self._inside(value, self._typed, _TYPED_LEVELS)

    def mapping(self, value: dict[str, Any]) -> dict[str, Any]:
        packed: dict[str, Any] = {}
        key = ""
        try:
            for key, item in list(value.items()):  # a copy: another thread may be adding keys
                if _has_surrogate(key):
                    raise RefusalError("the key is not valid Unicode")
                cls = type(item)
                if cls in _AS_IS or (cls is str and item.isascii()):
                    packed[key] = item
                else:
                    packed[key] = self.value(item)
        except RefusalError as refusal:
            refusal.path.append(key)
            raise
        return packed

    def sequence(self, value: Iterable[Any]) -> list[Any]:
        packed: list[Any] = []
        try:
            for item in value:
                cls = type(item)
                if cls in _AS_IS or (cls is str and item.isascii()):
                    packed.append(item)
                else:
                    packed.append(self.value(item))
        except RefusalError as refusal:
            refusal.path.append(len(packed))
            raise
        return packed

    def _pairs(self, value: dict[Any, Any]) -> list[Any]:
        packed: list[Any] = []
        key: Any = None
        try:
            for key, item in list(value.items()):
                packed.append([self.value(key), self.value(item)])
        except RefusalError as refusal:
            refusal.path.append(key if isinstance(key, str | int) else repr(key))
            raise
        return packed

    def _odd_mapping(self, value: dict[Any, Any]) -> dict[str, Any]:
        return {TYPE: "dict", "items": self._pairs(value)}

    def _inside(self, value: Any, pack: Callable[[Any], Any], levels: int) -> Any:
        """Pack what is inside a container, watching for cycles and depth."""
        if id(value) in self._around:
            raise RefusalError("it contains itself", hint="keep a name or an id instead of a cycle")
        if self._depth + levels > MAX_DEPTH:
            raise RefusalError(f"more than {MAX_DEPTH} levels deep")
        self._around.add(id(value))
        self._depth += levels
        try:
            return pack(value)
        finally:
            self._depth -= levels
            self._around.discard(id(value))

    def _scalar(self, value: Any) -> dict[str, Any]:
        kind = scalars.BY_CLASS[type(value)]
        try:
            fields = kind.pack(value)
        except ValueError as error:
            raise RefusalError(str(error)) from None
        # A path may hold text that needs escaping, a complex number may hold a NaN.
        return {TYPE: kind.tag, **{name: self.value(field) for name, field in fields.items()}}

    def _typed(self, value: Any) -> dict[str, Any]:
        cls = type(value)
        if cls is tuple:
            return {TYPE: "tuple", "items": self.sequence(value)}
        if cls is set or cls is frozenset:
            # Sorted, so that equal sets give equal files and equal chunks.
            items = sorted(self.sequence(list(value)), key=msgspec.json.encode)
            return {TYPE: cls.__name__, "items": items}
        if cls is deque:
            return {TYPE: "deque", "items": self.sequence(list(value)), "maxlen": value.maxlen}
        if cls is OrderedDict or cls is Counter:
            tag = "ordered_dict" if cls is OrderedDict else "counter"
            return {TYPE: tag, "items": self._pairs(value)}
        return self._instance(value, cls)

    def _instance(self, value: Any, cls: type) -> dict[str, Any]:
        custom = self.types.custom(cls)
        self.classes.add(cls)
        if custom:
            plain = self.value(custom.pack(value))
            return {TYPE: "custom", "class": name_of(cls), "value": plain}
        if isinstance(value, enum.Flag):  # combinations of flags have no name of their own
            number = self.value(int(value.value))
            return {TYPE: "enum", "class": name_of(cls), "value": number}
        if isinstance(value, enum.Enum):
            return {TYPE: "enum", "class": name_of(cls), "name": value.name}
        if dataclasses.is_dataclass(cls):
            fields = self.mapping(_fields(value, cls))
            return {TYPE: "dataclass", "class": name_of(cls), "fields": fields}
        if is_named_tuple(cls):
            return {
                TYPE: "namedtuple",
                "class": name_of(cls),
                "fields": self.mapping(value._asdict()),
            }
        raise RefusalError(
            f"JSON cannot hold a value of type {name_of(cls)}",
            hint="keep plain data, or say how with holdfast.state.register(cls, pack=, unpack=)",
        )


def _fields(value: Any, cls: Any) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(cls)]
    missing = [name for name in names if not hasattr(value, name)]
    if missing:
        raise RefusalError(f"{name_of(cls)} without a value for {', '.join(missing)}")
    return {name: getattr(value, name) for name in names}


def _escaped(text: str) -> dict[str, str]:
    return {TYPE: "str", "escaped": text.encode("unicode_escape").decode("ascii")}


def _has_plain_keys(value: dict[Any, Any]) -> bool:
    if TYPE in value:
        return False
    for key in list(value):
        if type(key) is not str or (not key.isascii() and _has_surrogate(key)):
            return False
    return True


def _has_surrogate(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
