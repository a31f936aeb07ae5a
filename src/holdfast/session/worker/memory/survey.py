"""Large arrays and frames at the surface of a namespace: a quick look, in which no code runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.kinds.arrays import is_array
from holdfast.session.worker.memory.tracker import Place
from holdfast.session.worker.runner import type_module

LARGE = 1 << 20
_FRAMES = {"DataFrame", "Series"}
# What most variables are, by identity: settled without a look at the type's name.
_OTHERS = frozenset(map(id, (
    bool, int, float, complex, str, bytes, type(None), list, dict, tuple, set, FunctionType, type,
)))  # fmt: skip


def places(namespace: Mapping[str, object]) -> set[Place]:
    """Where their memory is."""
    others = _OTHERS
    found = [value for value in list(namespace.values()) if id(type(value)) not in others]
    places: set[Place] = set()
    for value in found:
        try:
            places.update(_places(value))
        except Interrupted:
            raise
        except BaseException:  # noqa: BLE001, S112  # a class may only say that it is numpy's array
            continue
    return places


def _places(value: object) -> Iterator[Place]:
    for array in arrays(value):
        root = array
        while type(root.base) is type(root):
            root = root.base
        whole = root.flags.c_contiguous or root.flags.f_contiguous
        if root.nbytes >= LARGE and whole and not root.dtype.hasobject:
            yield root.__array_interface__["data"][0], root.nbytes


def arrays(value: object) -> Iterable[Any]:  # numpy is the user's choice: nothing is imported
    """The arrays that a variable consists of."""
    kind = type(value)
    if is_array(kind):
        return (value,)
    name, module = type.__dict__["__name__"].__get__(kind), type_module(kind)
    if name not in _FRAMES or module.partition(".")[0] != "pandas":
        return ()
    manager = object.__getattribute__(value, "_mgr")
    values = (block.values for block in getattr(manager, "blocks", ()))
    return [found for found in values if type(found).__name__ == "ndarray"]
