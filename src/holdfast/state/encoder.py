"""The encoder: one pass from Python values to JSON.

It runs on every value of every checkpoint, so plain values take the shortest way, and the path
to a value is put together only when it is refused or left out.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.model.secrets import LEAST, SURE, USUAL, Rule, looks_made, said_by, secret_value
from holdfast.state import arrays, scalars
from holdfast.state.rows import FEWEST, Rows
from holdfast.state.types import Types, is_named_tuple, name_of

TYPE = "$type"
SECRET = "secret"
# Levels of JSON. Deeper data is a mistake more often than a wish, and exhausts readers' stacks.
MAX_DEPTH = 100
_TYPED_LEVELS = 3  # how many levels of JSON a typed value takes at most
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1  # what JSON readers and the store keep exactly
_AS_IS = frozenset((bool, type(None)))
_SHORT = LEAST

# What goes in and comes out is of any type by nature; hence the Any in this module.

# What is known of keys that were met: what each says of its text. Keys come again and again.
_keys: dict[str, int] = {}
_MANY_KEYS = 50_000
_TEXT_ONLY = frozenset((str,))
_FLAT = frozenset((str, int, float, bool, type(None)))
_P = TypeVar("_P")


class Flat(NamedTuple):
    """A dict or list of nothing but texts and numbers, and what it became. `ids` are the addresses
    of all that was in it, which `packed` keeps from being used again."""

    value: object
    ids: list[int]
    packed: Any


class Seen(NamedTuple):
    """What one pass has looked at, by its address, so that the next need not look again: texts,
    in which nothing new can be found, and containers, which are the same while they hold the very
    same objects; lists of dicts by that of their first member."""

    texts: dict[int, str]
    flat: dict[int, Flat]
    rows: dict[int, Rows]


class LeftOut(NamedTuple):
    """A secret that is not in the JSON, with the way to it, innermost step first."""

    value: str | bytes
    marker: dict[str, Any]
    path: list[str | int]


class RefusalError(Exception):
    """A value that could not come back as it is, with the way to it, innermost step first."""

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint
        self.path: list[str | int] = []


class Encoder:
    """Encodes one state. `classes` are those it met that a file will name."""

    def __init__(self, types: Types, last: Seen | None = None, rule: Rule = USUAL) -> None:
        """`last` is what an earlier pass has seen; `rule` says what is a secret."""
        self.types = types
        self._rule = rule
        self.classes: set[type] = set()
        self.left_out: list[LeftOut] = []
        self.seen = Seen({}, {}, {})
        self.typed = False  # whether there is any `$type` in the JSON
        self._before = (last or self.seen).texts
        self._flat = (last or self.seen).flat
        self._rows = (last or self.seen).rows
        self._around: set[int] = set()  # ids of the containers around the present value
        self._depth = 0

    def value(self, value: Any) -> Any:
        """Any value as JSON; raises RefusalError. After that the encoder is of no more use."""
        cls = type(value)
        if cls in _AS_IS:
            return value
        if cls is str:
            return self._text(value)
        if cls is int:
            return value if _INT_MIN <= value <= _INT_MAX else self._tagged("int", hex=hex(value))
        if cls is float:
            return value if math.isfinite(value) else self._tagged("float", value=repr(value))
        if cls is list:
            return self._list(value)
        if cls is dict:
            return self._dict(value)
        if cls in scalars.BY_CLASS:
            return self._scalar(value)
        if arrays.handles(value):
            self.typed = True
            return arrays.to_json(value)
        return self._inside(value, self._typed, _TYPED_LEVELS)

    def _dict(self, value: dict[Any, Any]) -> dict[str, Any]:
        around, me = self._around, id(value)
        known = self._flat.get(me)
        ids = _ids(value)
        if known is not None and known.value is value and known.ids == ids:
            self.seen.flat[me] = known
            return known.packed  # type: ignore[no-any-return]  # a dict became a dict
        plain = _has_plain_keys(value)
        if me in around or self._depth >= MAX_DEPTH or not plain:
            if plain:
                return self._inside(value, self.mapping, 1)
            return self._inside(value, self._odd_mapping, _TYPED_LEVELS)
        # What `_inside` does, without the calls: there are many small dicts.
        around.add(me)
        self._depth += 1
        packed = self.mapping(value)
        self._depth -= 1
        around.discard(me)
        if _FLAT.issuperset(map(type, packed.values())):
            self._remember(value, ids, packed, _ids(packed))
        return packed

    def _remember(self, value: object, ids: list[int], packed: Any, now: list[int]) -> None:
        """Recognise a flat container the next time, unless it changed while it was packed."""
        if ids == now:
            self.seen.flat[id(value)] = Flat(value, ids, packed)

    def mapping(self, value: dict[str, Any]) -> dict[str, Any]:
        packed = dict(value)  # a copy: another thread may be adding keys
        before, rule = self._before, self._rule
        left = len(self.left_out)
        key = ""
        try:
            for key, item in packed.items():
                hidden = _keys.get(key)
                if hidden is None:
                    hidden = _learn(key)
                cls = type(item)
                if rule is not USUAL:
                    hidden = rule.says(key)
                    if (cls is str or cls is bytes) and (
                        rule.kept(key) or (rule.keep_all and not hidden)
                    ):
                        packed[key] = self._kept(item)
                        continue
                if cls is str:
                    known = before.get(id(item))
                    if known is not None and known is item and not hidden:
                        self.seen.texts[id(item)] = known
                        continue
                    if len(item) < _SHORT and not hidden and item.isascii():
                        continue
                    if hidden and item and (hidden == SURE or looks_made(item)):
                        packed[key] = self._leave_out(item)
                    else:
                        packed[key] = self._text(item)
                elif cls is int:
                    if not _INT_MIN <= item <= _INT_MAX:
                        packed[key] = self.value(item)
                elif cls is bytes and hidden and item and (hidden == SURE or looks_made(item)):
                    packed[key] = self._leave_out(item)
                elif cls not in _AS_IS:
                    packed[key] = self.value(item)
                if len(self.left_out) > left:
                    left = self._step(key, left)
        except RefusalError as refusal:
            refusal.path.append(key)
            raise
        return packed

    def _list(self, value: list[Any]) -> list[Any]:
        members = list(value)  # a copy: another thread may be adding members
        known = self._flat.get(id(value))
        if known is not None and known.value is value and known.ids == [*map(id, members)]:
            self.seen.flat[id(value)] = known
            return known.packed  # type: ignore[no-any-return]  # a list became a list
        rows = self._rows.get(id(members[0])) if members else None
        if rows is not None and not rows.begin(members):
            for each, became in zip(rows.dicts, rows.packed, strict=True):
                self._flat[id(each)] = Flat(each, _ids(became), became)
            rows = None
        packed = self._inside(value, lambda _: self.sequence(members, rows), 1)
        if _FLAT.issuperset(map(type, packed)):
            self._remember(value, [*map(id, members)], packed, [*map(id, packed)])
        elif len(members) >= FEWEST:
            self._remember_rows(members, packed, rows)
        return packed

    def _remember_rows(self, members: list[Any], packed: list[Any], known: Rows | None) -> None:
        """Recognise the flat dicts at the beginning of a list the next time."""
        flat, first = self.seen.flat, len(known.dicts) if known else 0
        end = first
        for member in members[first:]:
            if type(member) is not dict or id(member) not in flat:
                break
            end += 1
        if known is None:
            known = Rows.of(members[:end], packed[:end]) if end >= FEWEST else None
        elif end > first:
            known = known.longer(members[first:end], packed[first:end])
        if known is not None:
            self.seen.rows[id(members[0])] = known

    def sequence(self, value: Iterable[Any], known: Rows | None = None) -> list[Any]:
        """The members packed; those of `known`, at the beginning, are so already."""
        packed: list[Any] = list(value)
        first = 0
        if known is not None:
            first = len(known.packed)
            packed[:first] = known.packed
        left = len(self.left_out)
        at = 0
        try:
            for at, item in enumerate(packed[first:], first):
                cls = type(item)
                if cls is dict:
                    packed[at] = self._dict(item)
                elif cls is str and len(item) < _SHORT and item.isascii():
                    continue
                elif cls not in _AS_IS:
                    packed[at] = self.value(item)
                if len(self.left_out) > left:
                    left = self._step(at, left)
        except RefusalError as refusal:
            refusal.path.append(at)
            raise
        return packed

    def _text(self, text: str) -> Any:
        """A text, unless it is one that is left out."""
        if self._before.get(id(text)) is text:
            self.seen.texts[id(text)] = text
            return text
        if len(text) >= _SHORT and not self._rule.keep_all and secret_value(text):
            return self._leave_out(text)
        if _has_surrogate(text):
            return self._escaped(text)
        if len(text) >= _SHORT:
            self.seen.texts[id(text)] = text
        return text

    def _kept(self, value: str | bytes) -> Any:
        """A text or byte string that is not looked at for secrets."""
        if isinstance(value, bytes):
            return self._tagged("bytes", **scalars.BY_CLASS[bytes].pack(value))
        return self._escaped(value) if _has_surrogate(value) else value

    def _leave_out(self, value: str | bytes) -> dict[str, Any]:
        marker = self._tagged(SECRET)
        if isinstance(value, bytes):
            marker["bytes"] = True
        self.left_out.append(LeftOut(value, marker, []))
        return marker

    def _step(self, step: str | int, since: int) -> int:
        """Note that what was left out lies behind this step."""
        for each in self.left_out[since:]:
            each.path.append(step)
        return len(self.left_out)

    def _pairs(self, value: dict[Any, Any]) -> list[Any]:
        packed: list[Any] = []
        key: Any = None
        try:
            for key, item in list(value.items()):
                left = len(self.left_out)
                packed.append(
                    [
                        self._kept(key) if type(key) is str else self.value(key),
                        self._member(key, item),
                    ]
                )
                self._step(_step_to(key), left)
        except RefusalError as refusal:
            refusal.path.append(_step_to(key))
            raise
        return packed

    def _member(self, key: object, item: Any) -> Any:
        """What stands under a key that JSON cannot have."""
        if type(item) in (str, bytes) and isinstance(key, str):
            if self._rule.kept(key):
                return self._kept(item)
            if self._rule.secret(key, item):
                return self._leave_out(item)
            if self._rule.keep_all:
                return self._kept(item)
        return self.value(item)

    def _odd_mapping(self, value: dict[Any, Any]) -> dict[str, Any]:
        return self._tagged("dict", items=self._pairs(value))

    def _inside(self, value: Any, pack: Callable[[Any], _P], levels: int) -> _P:
        """Pack what is inside a container, watching for cycles and depth."""
        around, me = self._around, id(value)
        if me in around:
            raise RefusalError("it contains itself", hint="keep a name or an id instead of a cycle")
        self._depth += levels
        if self._depth > MAX_DEPTH:
            raise RefusalError(f"more than {MAX_DEPTH} levels deep")
        around.add(me)
        packed = pack(value)
        around.discard(me)
        self._depth -= levels
        return packed

    def _scalar(self, value: Any) -> dict[str, Any]:
        if type(value) is bytes and not self._rule.keep_all and secret_value(value):
            return self._leave_out(value)
        kind = scalars.BY_CLASS[type(value)]
        try:
            fields = kind.pack(value)
        except ValueError as error:
            raise RefusalError(str(error)) from None
        # A path may hold text that needs escaping, a complex number may hold a NaN.
        return self._tagged(kind.tag, **{name: self.value(field) for name, field in fields.items()})

    def _typed(self, value: Any) -> dict[str, Any]:
        cls = type(value)
        if cls is tuple:
            return self._tagged("tuple", items=self.sequence(value))
        if cls is set or cls is frozenset:
            # Sorted, so that equal sets give equal files and equal chunks.
            items = sorted(self.sequence(list(value)), key=msgspec.json.encode)
            return self._tagged(cls.__name__, items=items)
        if cls is deque:
            items = self.sequence(list(value))
            return self._tagged("deque", items=items, maxlen=value.maxlen)
        if cls is OrderedDict or cls is Counter:
            tag = "ordered_dict" if cls is OrderedDict else "counter"
            return self._tagged(tag, items=self._pairs(value))
        return self._instance(value, cls)

    def _instance(self, value: Any, cls: type) -> dict[str, Any]:
        custom = self.types.custom(cls)
        self.classes.add(cls)
        if custom:
            plain = self.value(custom.pack(value))
            return self._instance_of(cls, "custom", value=plain)
        if isinstance(value, enum.Flag):  # combinations of flags have no name of their own
            number = self.value(int(value.value))
            return self._instance_of(cls, "enum", value=number)
        if isinstance(value, enum.Enum):
            return self._instance_of(cls, "enum", name=value.name)
        if dataclasses.is_dataclass(cls):
            fields = self.mapping(_fields(value, cls))
            return self._instance_of(cls, "dataclass", fields=fields)
        if is_named_tuple(cls):
            return self._instance_of(cls, "namedtuple", fields=self.mapping(value._asdict()))
        raise RefusalError(
            f"JSON cannot hold a value of type {name_of(cls)}",
            hint="keep plain data, or say how with holdfast.state.register(cls, pack=, unpack=)",
        )

    def _escaped(self, text: str) -> dict[str, Any]:
        return self._tagged("str", escaped=text.encode("unicode_escape").decode("ascii"))

    def _instance_of(self, cls: type, tag: str, /, **fields: Any) -> dict[str, Any]:
        self.typed = True
        return {TYPE: tag, "class": name_of(cls), **fields}

    def _tagged(self, tag: str, /, **fields: Any) -> dict[str, Any]:
        self.typed = True
        return {TYPE: tag, **fields}


def _fields(value: Any, cls: Any) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(cls)]
    missing = [name for name in names if not hasattr(value, name)]
    if missing:
        raise RefusalError(f"{name_of(cls)} without a value for {', '.join(missing)}")
    return {name: getattr(value, name) for name in names}


def _ids(value: dict[Any, Any]) -> list[int]:
    try:
        return [*map(id, value), *map(id, value.values())]
    except RuntimeError:  # another thread came in just before one of the two steps
        return [0]  # as no dict has been before


def _step_to(key: object) -> str | int:
    if isinstance(key, str | int):
        return key
    try:
        return repr(key)
    except Exception:  # noqa: BLE001 - a key that cannot tell what it is must not hide the refusal
        return f"<{name_of(type(key))}>"


def _has_plain_keys(value: dict[Any, Any]) -> bool:
    """Whether JSON can have these keys."""
    if _keys.keys() >= value.keys() and _TEXT_ONLY.issuperset(map(type, [*value])):
        return True  # all of them are known
    for key in list(value):
        if type(key) is not str or (key not in _keys and _has_surrogate(key)):
            return False
    return TYPE not in value


def _learn(key: str) -> int:
    """Remember what a key says of its text; raises RefusalError for what can be no key."""
    if _has_surrogate(key):
        raise RefusalError("the key is not valid Unicode")
    if len(_keys) > _MANY_KEYS:
        _keys.clear()
    hidden = said_by(key)
    if key != TYPE:  # which is only ever a key of the outermost dict
        _keys[key] = hidden
    return hidden


def _has_surrogate(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
