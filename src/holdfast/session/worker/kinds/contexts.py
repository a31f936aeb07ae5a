"""Context variables and contexts: a variable with the value it has in the session."""

from __future__ import annotations

from contextvars import Context, ContextVar, Token, copy_context
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction

# `Any` below: variables of values of every type.


def variable(name: str, default: tuple[object, ...]) -> ContextVar[Any]:
    """A variable, with its default if it has one."""
    return ContextVar(name, default=default[0]) if default else ContextVar(name)


def set_variable(made: ContextVar[Any], state: tuple[object]) -> None:
    """Give a variable its value, in the context that cells run in."""
    made.set(state[0])


def context() -> Context:
    """A context, still empty."""
    return Context()


def set_context(made: Context, state: list[tuple[ContextVar[Any], object]]) -> None:
    """Fill a context."""
    for each, value in state:
        made.run(each.set, value)


def _variable(recorder: Recorder, obj: ContextVar[Any]) -> Reduction:
    try:
        default = recorder.without((obj.name,), (Context().run(obj.get),))
    except LookupError:
        default = ()
    if obj not in copy_context():
        return variable, (obj.name, default)
    value = recorder.without((obj.name,), (obj.get(),))
    return variable, (obj.name, default), value, None, None, set_variable


def _context(recorder: Recorder, obj: Context) -> Reduction:
    values = recorder.without([each.name for each in obj], obj.values())
    return context, (), list(zip(obj, values, strict=True)), None, None, set_context


def _token(recorder: Recorder, obj: object) -> Reduction:
    return recorder.hole(obj, "a token can only reset the context that it was made in")


EXACT: dict[type, Reduce] = {ContextVar: _variable, Context: _context, Token: _token}
