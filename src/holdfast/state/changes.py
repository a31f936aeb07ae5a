"""Changes: what differs between two saved states, in the words of the application. Pure.

The JSON of the two is compared, so nothing is rebuilt to find out; the values that differ are then
given as they were saved where their types are known, and as JSON where they are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.model.difference import ABSENT
from holdfast.model.errors import HoldfastError
from holdfast.state import values
from holdfast.state.encoder import TYPE
from holdfast.state.types import Types, known

# What one typed value has inside that is worth comparing on its own, and by which steps.
_INSIDE = {"dataclass": "fields", "namedtuple": "fields", "tuple": "items", "deque": "items"}


@dataclass(frozen=True, slots=True)
class Change:
    """One place that differs; `before` or `after` is ABSENT where there is nothing.

    The values are whatever the application put there, hence the Any.
    """

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.path}: {self.before!r} -> {self.after!r}"


def between(before: dict[str, Any], after: dict[str, Any], types: Types = known) -> list[Change]:
    """Every place in which two states in JSON form differ, in the order of the first one."""
    return [
        Change(values.path_text(path), _value(old, types), _value(new, types))
        for path, old, new in _members(before, after, ())
    ]


_Place = tuple[tuple[str | int, ...], Any, Any]


def _walk(old: Any, new: Any, path: tuple[str | int, ...]) -> Iterator[_Place]:
    if type(old) is type(new) and old == new and _is_same(old, new):
        return
    if type(old) is dict and type(new) is dict and _is_alike(old, new):
        inside = _INSIDE.get(old.get(TYPE, ""))
        if inside is not None:
            yield from _walk(old[inside], new[inside], path)
        elif TYPE not in old:
            yield from _members(old, new, path)
        else:
            yield path, old, new
    elif type(old) is list and type(new) is list:
        for at in range(max(len(old), len(new))):
            left = old[at] if at < len(old) else ABSENT
            right = new[at] if at < len(new) else ABSENT
            yield from _walk(left, right, (*path, at))
    else:
        yield path, old, new


def _is_same(old: Any, new: Any) -> bool:
    """Whether what is equal is the same inside, too: Python takes 0, 0.0 and False for one."""
    return type(old) not in (dict, list) or json.dumps(old) == json.dumps(new)


def _members(
    old: dict[str, Any], new: dict[str, Any], path: tuple[str | int, ...]
) -> Iterator[_Place]:
    for key in [*old, *(key for key in new if key not in old)]:
        yield from _walk(old.get(key, ABSENT), new.get(key, ABSENT), (*path, key))


def _is_alike(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether two objects are of one type, so that a comparison inside says more."""
    return (old.get(TYPE), old.get("class")) == (new.get(TYPE), new.get("class"))


def _value(packed: Any, types: Types) -> Any:
    if packed is ABSENT:
        return ABSENT
    try:
        return values.decode({"value": packed}, types).get("value")
    except HoldfastError:
        return packed  # a class that is not known here, or is no longer what it was
