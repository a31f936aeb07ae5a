"""Large arrays and frames at the surface of a namespace: a quick look, in which no code runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.session.worker.memory.tracker import Place
from holdfast.session.worker.runner import type_module

LARGE = 1 << 20
_FRAMES = {"DataFrame", "Series"}


def places(namespace: Mapping[str, object]) -> set[Place]:
    """Where their memory is."""
    return {place for value in list(namespace.values()) for place in _places(value)}


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
    name, module = type.__dict__["__name__"].__get__(kind), type_module(kind)
    if name == "ndarray" and module == "numpy":
        return (value,)
    if name not in _FRAMES or module.partition(".")[0] != "pandas":
        return ()
    manager = object.__getattribute__(value, "_mgr")
    values = (block.values for block in getattr(manager, "blocks", ()))
    return [found for found in values if type(found).__name__ == "ndarray"]
