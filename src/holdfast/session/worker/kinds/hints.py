"""What type hints are made of, where pickle would only write down a name of the session."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction


# `Any` below: these objects have no type that says what they are.


def parameters(name: str, bound: Any, covariant: bool, contravariant: bool) -> Any:
    """A `ParamSpec`."""
    make: Any = typing.ParamSpec  # a checker wants to see the name
    made = make(name, bound=bound, covariant=covariant, contravariant=contravariant)
    made.__module__ = "__main__"
    return made


def several(name: str) -> Any:
    """A `TypeVarTuple`."""
    make: Any = typing.TypeVarTuple
    made = make(name)
    made.__module__ = "__main__"
    return made


def typed_dict(name: str, fields: dict[str, Any], total: bool, module: str) -> Any:
    """What calling `TypedDict` makes."""
    make: Any = typing.TypedDict
    made = make(name, fields, total=total)
    made.__module__ = module
    return made


def is_typed_dict(obj: Any) -> bool:
    """Whether a class was made by calling `TypedDict`, and not by a class statement."""
    return typing.is_typeddict(obj) and "__orig_bases__" not in vars(obj)


def reduce_typed_dict(obj: Any) -> Reduction:
    """By the call that made it."""
    return typed_dict, (obj.__name__, obj.__annotations__, obj.__total__, obj.__module__)


def _parameters(recorder: Recorder, obj: Any) -> Reduction:
    if obj.__module__ != "__main__":
        return recorder.plain(obj)
    variance = (obj.__covariant__, obj.__contravariant__)
    return parameters, (obj.__name__, obj.__bound__, *variance)


def _several(recorder: Recorder, obj: Any) -> Reduction:
    return recorder.plain(obj) if obj.__module__ != "__main__" else (several, (obj.__name__,))


EXACT: dict[type, Reduce] = {typing.ParamSpec: _parameters, typing.TypeVarTuple: _several}
