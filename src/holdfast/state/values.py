"""Values: Python values to JSON and back, exactly or not at all. Pure.

Plain JSON values stay as they are; everything else is an object with the key `$type`. What
cannot come back as it was is refused with the path to it, before anything is written.
Objects that are reachable twice come back as two equal objects.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast
from zoneinfo import ZoneInfoNotFoundError

import msgspec

from holdfast.model.errors import BadInput, Corrupt, Denied, Unsupported
from holdfast.state import arrays, scalars
from holdfast.state.types import Types, is_named_tuple, known, name_of

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"

TYPE = "$type"
# Deeper data is a mistake more often than a wish, and would exhaust the stack of a JSON reader.
MAX_DEPTH = 100
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1  # what JSON readers and the store keep exactly

Path_: TypeAlias = tuple[str | int, ...]


def path_text(path: Iterable[str | int]) -> str:
    """How a person would write the way to a value: `results[3].when`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "the state"


def encode(state: dict[str, Any], types: Types = known) -> tuple[dict[str, JSON], set[type]]:
    """The state as JSON, and the classes it has instances of. Raises BadInput with the path."""
    encoder = _Encoder(types)
    if not isinstance(state, dict):
        raise BadInput(f"state_data is a dict, not {type(state).__name__}")
    for key in state:
        if type(key) is not str:
            raise BadInput(f"a key of the state is text, not {type(key).__name__}: {key!r}")
    try:
        packed = encoder.mapping(state)
    except RecursionError:
        raise BadInput("the state is nested too deeply to save") from None
    return packed, encoder.classes


def decode(packed: dict[str, JSON], types: Types = known) -> dict[str, Any]:
    """The inverse of `encode`.

    Raises Denied for a class that is not known to `types`, Unsupported for one that changed,
    Corrupt for what `encode` never wrote.
    """
    decoder = _Decoder(types)
    try:
        # The outermost object is always the state itself, even when it has a key `$type`.
        return {key: decoder.value(item, (key,)) for key, item in packed.items()}
    except RecursionError:
        raise Corrupt("the saved state is nested too deeply to read") from None


class _Encoder:
    def __init__(self, types: Types) -> None:
        self.types = types
        self.classes: set[type] = set()
        self.path: list[str | int] = []
        self.open: set[int] = set()  # ids of the containers around the present value

    def refuse(self, why: str, hint: str | None = None) -> BadInput:
        return BadInput(f"{path_text(self.path)}: {why}", hint=hint)

    def value(self, value: object) -> JSON:
        cls = type(value)
        if cls is str:
            return self.text(cast(str, value))
        if value is None or cls is bool:
            return cast(JSON, value)
        if cls is int:
            number = cast(int, value)
            return number if _INT_MIN <= number <= _INT_MAX else {TYPE: "int", "hex": hex(number)}
        if cls is float:
            real = cast(float, value)
            return real if math.isfinite(real) else {TYPE: "float", "value": repr(real)}
        custom = self.types.custom(cls)
        if custom:
            self.classes.add(cls)
            plain = self.inside(value, lambda: self.value(custom.pack(value)))
            return {TYPE: "custom", "class": name_of(cls), "value": plain}
        if cls in scalars.BY_CLASS:
            return self.scalar(value)
        if isinstance(value, enum.Enum):
            self.classes.add(cls)
            return {TYPE: "enum", "class": name_of(cls), **self.member(value)}
        if arrays.handles(value):
            return cast(JSON, arrays.to_json(cast(Any, value)))
        return self.inside(value, lambda: self.container(value, cls))

    def text(self, value: str) -> JSON:
        if value.isascii() or not _has_surrogate(value):
            return value
        return {TYPE: "str", "escaped": value.encode("unicode_escape").decode("ascii")}

    def scalar(self, value: object) -> JSON:
        kind = scalars.BY_CLASS[type(value)]
        try:
            fields = kind.pack(value)
        except ValueError as error:
            raise self.refuse(str(error)) from None
        # A path may hold text that needs escaping, a complex number may hold a NaN.
        return {TYPE: kind.tag, **{name: self.value(field) for name, field in fields.items()}}

    def member(self, value: enum.Enum) -> dict[str, JSON]:
        if isinstance(value, enum.Flag):  # combinations of flags have no name of their own
            return {"value": self.value(int(value.value))}
        return {"name": value.name}

    def inside(self, value: object, pack: Callable[[], JSON]) -> JSON:
        if id(value) in self.open:
            raise self.refuse("it contains itself", hint="keep a name or an id instead of a cycle")
        if len(self.open) >= MAX_DEPTH:
            raise self.refuse(f"more than {MAX_DEPTH} levels deep")
        self.open.add(id(value))
        try:
            return pack()
        finally:
            self.open.discard(id(value))

    def container(self, value: object, cls: type) -> JSON:
        if cls is dict:
            mapping = cast("dict[object, object]", value)
            if TYPE not in mapping and all(_is_plain_key(key) for key in list(mapping)):
                return self.mapping(cast("dict[str, object]", mapping))
            return {TYPE: "dict", "items": self.pairs(mapping)}
        if cls is list:
            return self.sequence(cast("list[object]", value))
        if cls is tuple:
            return {TYPE: "tuple", "items": self.sequence(cast("tuple[object, ...]", value))}
        if cls is set or cls is frozenset:
            items = self.sequence(list(cast("set[object]", value)))
            # Sorted, so that equal sets give equal files and equal chunks.
            return {TYPE: cls.__name__, "items": sorted(items, key=msgspec.json.encode)}
        if cls is deque:
            queue = cast("deque[object]", value)
            return {TYPE: "deque", "items": self.sequence(list(queue)), "maxlen": queue.maxlen}
        if cls is OrderedDict or cls is Counter:
            tag = "ordered_dict" if cls is OrderedDict else "counter"
            return {TYPE: tag, "items": self.pairs(cast("dict[object, object]", value))}
        if dataclasses.is_dataclass(cls):
            self.classes.add(cls)
            names = [field.name for field in dataclasses.fields(cls)]
            missing = [name for name in names if not hasattr(value, name)]
            if missing:
                raise self.refuse(f"{name_of(cls)} without a value for {', '.join(missing)}")
            fields = {name: cast(object, getattr(value, name)) for name in names}
            return {TYPE: "dataclass", "class": name_of(cls), "fields": self.mapping(fields)}
        if is_named_tuple(cls):
            self.classes.add(cls)
            fields = cast(Any, value)._asdict()
            return {TYPE: "namedtuple", "class": name_of(cls), "fields": self.mapping(fields)}
        raise self.refuse(
            f"JSON cannot hold a value of type {name_of(cls)}",
            hint="keep plain data, or say how with holdfast.state.register(cls, pack=, unpack=)",
        )

    def mapping(self, value: dict[str, Any]) -> dict[str, JSON]:
        packed: dict[str, JSON] = {}
        for key, item in list(value.items()):  # a copy: another thread may be adding keys
            self.path.append(key)
            if _has_surrogate(key):
                raise self.refuse("the key is not valid Unicode")
            packed[key] = self.value(item)
            self.path.pop()
        return packed

    def sequence(self, value: Iterable[object]) -> list[JSON]:
        packed: list[JSON] = []
        for index, item in enumerate(value):
            self.path.append(index)
            packed.append(self.value(item))
            self.path.pop()
        return packed

    def pairs(self, value: dict[object, object]) -> list[JSON]:
        packed: list[JSON] = []
        for key, item in list(value.items()):
            self.path.append(key if isinstance(key, str | int) else repr(key))
            packed.append([self.value(key), self.value(item)])
            self.path.pop()
        return packed


class _Decoder:
    def __init__(self, types: Types) -> None:
        self.types = types

    def value(self, packed: JSON, path: Path_) -> Any:
        if isinstance(packed, list):
            return [self.value(item, (*path, index)) for index, item in enumerate(packed)]
        if not isinstance(packed, dict):
            return packed
        if TYPE not in packed:
            return {key: self.value(item, (*path, key)) for key, item in packed.items()}
        try:
            return self.typed(packed, path)
        except ZoneInfoNotFoundError as error:
            raise Unsupported(
                f"{path_text(path)}: {error}", hint="install the package tzdata"
            ) from error
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise Corrupt(
                f"{path_text(path)}: not a {packed[TYPE]!r} value ({error})", where=path_text(path)
            ) from error

    # The values inside are of any type by nature, and every misfit is caught in `value`.
    def typed(self, packed: dict[str, Any], path: Path_) -> Any:
        tag = packed[TYPE]
        if tag in scalars.BY_TAG:
            fields = {name: self.value(item, path) for name, item in packed.items() if name != TYPE}
            return scalars.BY_TAG[tag].unpack(fields)
        match tag:
            case "int":
                return int(packed["hex"], 16)
            case "float":
                return float(packed["value"])
            case "str":
                return packed["escaped"].encode("ascii").decode("unicode_escape")
            case "tuple" | "set" | "frozenset":
                build = {"tuple": tuple, "set": set, "frozenset": frozenset}[tag]
                return build(self.value(packed["items"], path))
            case "deque":
                return deque(self.value(packed["items"], path), packed["maxlen"])
            case "dict" | "ordered_dict" | "counter":
                pairs = self.value(packed["items"], path)
                return _MAPPINGS[tag](dict(pairs))
            case arrays.ARRAY | arrays.SCALAR:
                return arrays.from_json(packed)
            case "enum" | "dataclass" | "namedtuple" | "custom":
                return self.instance(tag, packed, path)
            case _:
                raise Unsupported(
                    f"{path_text(path)}: unknown type {tag!r}",
                    hint="a newer Holdfast may have written it",
                )

    def instance(self, tag: str, packed: dict[str, Any], path: Path_) -> Any:
        cls = self.known(packed["class"], path)
        if tag == "enum" and issubclass(cls, enum.Enum):
            return cls(packed["value"]) if "value" in packed else _member(cls, packed["name"])
        if tag == "custom":
            custom = self.types.custom(cls)
            if custom is None:
                raise Unsupported(f"{name_of(cls)} was saved by pack=, which is not registered")
            return custom.unpack(self.value(packed["value"], path))
        fields = {name: self.value(item, (*path, name)) for name, item in packed["fields"].items()}
        if tag == "dataclass" and dataclasses.is_dataclass(cls):
            return _dataclass(cast(type, cls), fields)
        if tag == "namedtuple" and is_named_tuple(cls):
            return cls(**fields)
        raise Unsupported(f"{name_of(cls)} was saved as a {tag} and is none any more")

    def known(self, name: str, path: Path_) -> Any:
        try:
            return self.types.get(name)
        except Denied as error:
            raise Denied(f"{path_text(path)}: {error}", hint=error.hint) from None


_MAPPINGS: dict[str, Callable[[dict[Any, Any]], dict[Any, Any]]] = {
    "dict": dict,
    "ordered_dict": OrderedDict,
    "counter": Counter,
}


def _is_plain_key(key: object) -> bool:
    return type(key) is str and not _has_surrogate(key)


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def _member(cls: type[enum.Enum], name: str) -> enum.Enum:
    if name not in cls.__members__:
        raise Unsupported(f"{name_of(cls)} has no member {name} any more")
    return cls[name]


def _dataclass(cls: type, fields: dict[str, Any]) -> Any:
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
