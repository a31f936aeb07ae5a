"""numpy, loaded when it is first used: whoever only looks at the log needs no arrays, and loading
numpy takes longer than everything else that a short command does."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from holdfast.model.blas import resting

__all__ = ["distinct", "loaded", "np"]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Number = TypeVar("Number", bound=np.integer)
else:

    class _Numpy(ModuleType):
        def __getattr__(self, name: str) -> object:
            with resting():
                import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)  # from now on it is found without us
            return value

    np = _Numpy("numpy")


def loaded() -> bool:
    """Whether it is there already, so that to use it costs nothing."""
    return "numpy" in sys.modules


_MANY = 1000


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """The values that occur, sorted. `numpy.unique` does the same, and loads a package of its own
    for it, which takes longer than most of what is asked here."""
    if values.size > _MANY:
        low, high = int(values.min()), int(values.max())
        if high - low < values.size:  # then they are ticked off more quickly than sorted
            there = np.zeros(high - low + 1, dtype=bool)
            there[values.reshape(-1) - low] = True
            return (np.flatnonzero(there) + low).astype(values.dtype)
    ordered = np.sort(values, axis=None)
    first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
