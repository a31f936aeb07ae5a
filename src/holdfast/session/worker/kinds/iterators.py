"""Iterators and small tools of the standard library that pickle refuses, and whose state can be
read all the same."""

from __future__ import annotations

import gc
import itertools
import struct
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction

# `Any` below: iterators over everything.


def pairs(rest: Any, begun: tuple[Any, ...]) -> Any:
    """`itertools.pairwise`, after its last item if it has begun."""
    return itertools.pairwise(itertools.chain(begun, rest) if begun else rest)


def _pairs(recorder: Recorder, obj: Any) -> Reduction:
    # In the order of CPython's own visit: what is left, and the last item.
    rest, *begun = gc.get_referents(obj) or [iter(())]
    return pairs, (rest, tuple(begun[:1]))


def reduce_system_random(recorder: Recorder, obj: object) -> Reduction:
    """The system's numbers have no state."""
    return type(obj), ()


def _struct(recorder: Recorder, obj: struct.Struct) -> Reduction:
    return struct.Struct, (obj.format,)


EXACT: dict[type, Reduce] = {itertools.pairwise: _pairs, struct.Struct: _struct}
