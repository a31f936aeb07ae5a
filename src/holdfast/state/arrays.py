"""Arrays: numpy arrays and scalars as JSON. numpy is only touched where it is already in play."""

from __future__ import annotations

import base64
import binascii
import math
import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import numpy as np

ARRAY = "numpy.ndarray"
SCALAR = "numpy.scalar"
# Numbers, booleans, times and fixed-width text. Objects would need pickling, and records and
# masked arrays carry more than their bytes: those are refused instead of saved in part.
_KINDS = frozenset("biufcmMSU")


def handles(value: object) -> bool:
    """Is it something of numpy that this module can save exactly?"""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    if type(value) is numpy.ndarray or isinstance(value, numpy.generic):
        # The cast is right by the line above, which a type checker cannot follow.
        return getattr(value, "dtype").kind in _KINDS  # noqa: B009
    return False


def to_json(value: np.ndarray[Any, Any] | np.generic) -> dict[str, Any]:
    """`{"$type": ..., "dtype": ..., "shape": ..., "base64": ...}`: the exact bytes."""
    import numpy

    array = numpy.asarray(value)
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    packed: dict[str, Any] = {
        "$type": SCALAR if isinstance(value, numpy.generic) else ARRAY,
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "base64": base64.b64encode(array.tobytes("F" if fortran else "C")).decode("ascii"),
    }
    if fortran:
        packed["order"] = "F"
    return packed


def from_json(packed: dict[str, Any]) -> np.ndarray[Any, Any] | np.generic:
    """The inverse; raises ValueError, TypeError or KeyError for what `to_json` never wrote."""
    import numpy

    dtype = numpy.dtype(str(packed["dtype"]))
    shape = tuple(packed["shape"])
    if dtype.kind not in _KINDS or not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError(f"no array of {dtype} with shape {shape}")
    try:
        data = bytearray(base64.b64decode(packed["base64"], validate=True))
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(data)} bytes are not an array of {dtype} with shape {shape}")
    # A bytearray is writable memory, so the array is as changeable as the one that was saved.
    flat = numpy.frombuffer(data, dtype) if data else numpy.empty(shape, dtype)
    array = flat.reshape(shape, order="F" if packed.get("order") == "F" else "C")
    if packed["$type"] == SCALAR:
        return cast("np.generic", array[()])
    return array
