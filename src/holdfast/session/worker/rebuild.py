"""The builders that records name. The unpickler puts its own methods in their place.

Their names are part of the format (spec/session-v1.md): they may be added to, not renamed.
Setters work by themselves; the rest needs to know the session that is being restored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

from holdfast.session.worker.placeholder import Placeholder


def _only_while_restoring(*args: object) -> NoReturn:
    raise RuntimeError("a session's record can only be read by a session that restores it")


def definition(label: str) -> object:
    """The class or function with that label."""
    _only_while_restoring(label)


def code(cell: int, first: int, last: int, qualname: str, line: int, index: int) -> CodeType:
    """Code compiled from a cell's source."""
    _only_while_restoring(cell, first, last, qualname, line, index)


def namespace(module: str) -> dict[str, object]:
    """The globals of a module; `__main__` is the session's namespace itself."""
    _only_while_restoring(module)


def function(
    code: CodeType,
    namespace: dict[str, object],
    name: str,
    closure: tuple[CellType, ...] | None,
) -> FunctionType:
    """A function without its state."""
    return FunctionType(code, namespace, name, None, closure)


def set_function(made: FunctionType, state: dict[str, object]) -> None:
    """Give a function what its source does not say."""
    attributes = state.get("__dict__")
    if isinstance(attributes, dict):
        made.__dict__.update(attributes)
    for name, value in state.items():
        if name != "__dict__":
            setattr(made, name, value)


def set_state(made: Any, state: Any) -> None:
    """Give an object its attributes, where asking it for a `__setstate__` would run its
    `__getattr__`, which may need what it has not got yet."""
    own = None if hasattr(type(made), "__setstate__") else getattr(made, "__dict__", None)
    if type(own) is dict:
        own.update(state)
    else:  # what stands for an object of a library that is missing
        made.__setstate__(state)


def cell() -> CellType:
    """A closure's cell, still empty, so that a function may be found inside its own closure."""
    return CellType()


def set_cell(made: CellType, state: tuple[object]) -> None:
    """Fill a closure's cell."""
    (made.cell_contents,) = state


def placeholder(type_name: str, reason: str) -> Placeholder:
    """Stands where a node could not be saved."""
    return Placeholder(type_name, reason)


def module(name: str) -> ModuleType:
    """A module, imported if need be; `__main__` is the session's own."""
    _only_while_restoring(name)


def cached(function: Callable[..., object], maxsize: int | None, typed: bool) -> object:
    """A function with an empty `lru_cache`: what is in one comes back by `kinds.caches`, as far as
    that can read it."""
    return functools.lru_cache(maxsize, typed)(function)


def named(module: str, name: str) -> object:
    """What a module has under this name, where the module is there."""
    _only_while_restoring(module, name)


def revive(
    module: str, name: str, called: bool, args: tuple[object, ...], options: dict[str, object]
) -> object:
    """An object whose class was missing, made as it was to be made then."""
    _only_while_restoring(module, name, called, args, options)


# `Any`: numpy is the user's choice. Checkpoints of the first days have views under this name.
def view(root: Any, offset: int, shape: Any, strides: Any, dtype: Any, writeable: bool) -> Any:
    """A view of the array that owns the memory."""
    from holdfast.session.worker.kinds import arrays

    return arrays.view(root, offset, shape, strides, dtype, writeable)
