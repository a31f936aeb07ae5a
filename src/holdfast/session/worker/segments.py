"""Large dicts and lists, cut into segments that change by themselves. Pure.

A list is cut by position, a dict where a key's hash says so: then an entry that comes or goes
moves no other cut.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from types import FunctionType
from typing import NamedTuple

LARGE = 4096  # a dict or a list with more items is cut
SIZE = 512  # items of a segment; of a dict, on average
_LOOKED_AT = 2000  # containers looked into for large ones
_ITEMS = 64  # of each container

Container = dict[object, object] | list[object]
_INNER = (dict, list, tuple)
_FLAGS: Callable[[type], int] = type.__dict__["__flags__"].__get__  # no metaclass is asked
_HEAP_TYPE = 1 << 9


class Look(NamedTuple):
    """What a quick look into a value found."""

    large: list[Container]
    names: bool  # whether there are globals of code, which hold half the interpreter


def look(value: object, namespace: dict[str, object]) -> Look:
    """Look for large dicts and lists, and for globals, near the surface. No user code runs."""
    large: list[Container] = []
    names = False
    seen: set[int] = set()
    level: list[object] = [value]
    while level and len(seen) < _LOOKED_AT:
        below: list[object] = []
        for obj in level:
            kind = type(obj)
            inside = obj if kind is dict or kind is list or kind is tuple else _attributes(obj)
            if kind is FunctionType:
                assert isinstance(obj, FunctionType)
                names = names or obj.__globals__ is not namespace
            if inside is None or id(inside) in seen:
                continue
            seen.add(id(inside))
            assert isinstance(inside, _INNER)
            if (kind is dict or kind is list) and len(inside) > LARGE:
                large.append(inside)  # type: ignore[arg-type]  # just looked at
            names = names or (kind is dict and "__builtins__" in inside)
            items = iter(inside.values() if isinstance(inside, dict) else inside)
            below += islice(items, _ITEMS)
        level = below
    return Look(large, names)


def cut(container: Container) -> Iterator[list[object]]:
    """The segments: items of a list, or pairs of a dict."""
    if isinstance(container, list):
        for start in range(0, len(container), SIZE):
            yield container[start : start + SIZE]
        return
    segment: list[object] = []
    for pair in container.items():
        segment.append(pair)
        if _is_cut(pair[0]) or len(segment) >= 8 * SIZE:
            yield segment
            segment = []
    if segment:
        yield segment


def _is_cut(key: object) -> bool:
    # Not `hash` of a text, which is another one in every process.
    if type(key) is str:
        return zlib.crc32(key.encode("utf-8", "surrogatepass")) % SIZE == 0
    if type(key) is int:
        return (key * 0x9E3779B97F4A7C15 >> 20) % SIZE == 0
    return False


def _attributes(obj: object) -> dict[str, object] | None:
    if not _FLAGS(type(obj)) & _HEAP_TYPE:
        return None  # a type written in C
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None
