"""Formulas of patsy and the models of statsmodels that hold one.

patsy refuses to be pickled, because a formula refers to the namespace that it was written in; for a
session that is its own namespace, which is always there. statsmodels leaves the formula out and
evaluates it again where it is read, in the namespace of whoever reads it, which is not the
session's. Both come back by what they consist of.
"""

from __future__ import annotations

import copyreg
import sys
from types import FunctionType
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction
from holdfast.session.worker.kinds.functions import Scope
from holdfast.session.worker.kinds.modules import names_of
from holdfast.session.worker.missing import Missing, set_later
from holdfast.session.worker.texts import type_module

# `Any` below: both libraries are the user's choice, so they are not imported for their types.

_NAMESPACES = ("_namespaces", "_dicts")  # of what patsy looks variables up in


def set_parts(made: Any, state: dict[str, object]) -> None:
    """Give an object its attributes, without the way of its class."""
    if isinstance(made, Missing):
        set_later(made, set_parts, state)
    else:
        for name, value in state.items():
            object.__setattr__(made, name, value)


def refuses(kind: type) -> bool:
    """Whether patsy has marked this type as one that cannot be pickled."""
    if type_module(kind).partition(".")[0] != "patsy":
        return False
    refusing = {"no_pickling", "__getstate__"}  # `Origin` has one of its own
    ways = (getattr(kind, name, None) for name in ("__getstate__", "__reduce__"))
    return any(type(way) is FunctionType and way.__name__ in refusing for way in ways)


def reduce_parts(recorder: Recorder, obj: Any) -> Reduction:
    """An object by its attributes; the namespaces among them are named, never copied."""
    state = {name: getattr(obj, name) for name in _slots(type(obj)) if hasattr(obj, name)}
    state |= getattr(obj, "__dict__", {})
    for name in _NAMESPACES:
        if type(state.get(name)) is list:
            state[name] = [_named(recorder, each) for each in state[name]]
    made = copyreg.__newobj__, (type(obj),)  # type: ignore[attr-defined]
    return (*made, state, None, None, set_parts)


def _slots(kind: type) -> list[str]:
    return copyreg._slotnames(kind) or []  # type: ignore[attr-defined]  # as `object` does it


def _named(recorder: Recorder, names: Any) -> Any:
    if names is recorder.namespace:
        return Scope("__main__")
    module = sys.modules.get(str(names.get("__name__"))) if type(names) is dict else None
    return Scope(module.__name__) if module is not None and names_of(module) is names else names


BASES: dict[tuple[str, str], Reduce] = {("statsmodels.base.data", "ModelData"): reduce_parts}
