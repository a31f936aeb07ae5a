"""Large arrays and frames at the surface of a namespace: a quick look, in which no code runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.kinds.arrays import LARGE, MANY, is_array
from holdfast.session.worker.memory.tracker import Place
from holdfast.session.worker.texts import type_module

_FRAMES = {"DataFrame", "Series"}
# What most variables are, by identity: settled without a look at the type's name.
_OTHERS = frozenset(map(id, (
    bool, int, float, complex, str, bytes, type(None), list, dict, tuple, set, FunctionType, type,
)))  # fmt: skip


class Found(NamedTuple):
    """Where their memory is and what has it, and those that hold many objects, in one piece."""

    places: dict[Place, Any]  # arrays
    objects: list[Any]  # the same


def look(namespace: Mapping[str, object]) -> Found:
    others = _OTHERS
    values = [value for value in list(namespace.values()) if id(type(value)) not in others]
    found = Found({}, [])
    for value in values:
        try:
            _look(value, found)
        except Interrupted:
            raise
        except BaseException:  # noqa: BLE001, S112  # a class may only say that it is numpy's array
            continue
    return found


def _look(value: object, found: Found) -> None:
    for array in arrays(value):
        flags, dtype = array.flags, array.dtype
        if dtype.kind == "O":
            if array.size >= MANY and (flags.c_contiguous or flags.f_contiguous):
                found.objects.append(array)
            continue
        root = array
        while type(root.base) is type(root):
            root = root.base
        whole = root.flags.c_contiguous or root.flags.f_contiguous
        if root.nbytes >= LARGE and whole and not root.dtype.hasobject:
            found.places[root.__array_interface__["data"][0], root.nbytes] = root


def arrays(value: object) -> Iterable[Any]:  # numpy is the user's choice: nothing is imported
    """The arrays that a variable consists of."""
    kind = type(value)
    if is_array(kind):
        return (value,)
    name, module = type.__dict__["__name__"].__get__(kind), type_module(kind)
    if name not in _FRAMES or module.partition(".")[0] != "pandas":
        return ()
    manager = object.__getattribute__(value, "_mgr")
    values = [block.values for block in getattr(manager, "blocks", ())]
    values = [getattr(each, "_ndarray", each) for each in values]  # pandas' own array of texts
    return [found for found in values if type(found).__name__ == "ndarray"]
