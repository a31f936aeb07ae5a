"""Generators and coroutines: that have not begun, that have ended, and generators between."""

from __future__ import annotations

import gc
import inspect
from contextlib import suppress
from types import (
    AsyncGeneratorType,
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
)
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction

# `Any` below: what a generator yields, and what functions take.


# To be run again is all that a person can do with one.
_ADVICE = "make it again, and skip what was taken from it"


def begun(function: FunctionType, args: tuple[Any, ...], options: dict[str, Any], name: str) -> Any:
    """What calling the function gives, before the first step."""
    made = function(*args, **options)
    made.__name__ = name
    return made


def ended(kind: str, name: str) -> Any:
    """One that has nothing left to give."""

    def generator() -> Any:
        yield

    async def coroutine() -> None:
        return

    async def async_generator() -> Any:
        yield

    made: Any = {"generator": generator, "coroutine": coroutine}.get(kind, async_generator)()
    if kind == "async_generator":
        with suppress(StopIteration):  # that is how it says that it has ended
            made.aclose().send(None)
    else:
        made.close()
    made.__name__ = name
    return made


def _reduce(
    recorder: Recorder, obj: Any, kind: str, frame: FrameType | None, code: CodeType, fresh: bool
) -> Reduction:
    if frame is None:
        return ended, (kind, obj.__name__)
    if not fresh and kind == "generator":
        from holdfast.session.worker.kinds import resumption

        try:
            return resumption.reduce_waiting(recorder, obj)
        except resumption.NotResumable as error:
            why = f"cannot save a generator that is under way: {error}; {_ADVICE}"
            return recorder.hole(obj, why)
    if not fresh:
        return recorder.hole(obj, f"cannot save a {kind.replace('_', ' ')} that is under way")
    closure = tuple(cells_of(obj)[-len(code.co_freevars) :]) if code.co_freevars else None
    function = FunctionType(code, frame.f_globals, code.co_name, None, closure)
    function.__qualname__ = obj.__qualname__
    given = frame.f_locals
    given = dict(zip(given, recorder.without(given, given.values()), strict=True))
    args, options = _arguments(code, given)
    return begun, (function, args, options, obj.__name__)


def cells_of(obj: Any) -> list[CellType]:
    """The variables that a generator shares with others: those of functions around it last."""
    return [each for each in gc.get_referents(obj) if type(each) is CellType]


def _arguments(
    code: CodeType, given: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """How to call a function so that its parameters are these."""
    names = code.co_varnames
    count, options_end = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    args = tuple(given[name] for name in names[:count])
    options = {name: given[name] for name in names[count:options_end]}
    rest = options_end
    if code.co_flags & inspect.CO_VARARGS:
        more = given[names[rest]]
        args += more if isinstance(more, tuple) else ()
        rest += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        others = given[names[rest]]
        options |= others if isinstance(others, dict) else {}
    return args, options


def _generator(recorder: Recorder, obj: GeneratorType[Any, Any, Any]) -> Reduction:
    fresh = inspect.getgeneratorstate(obj) == inspect.GEN_CREATED
    return _reduce(recorder, obj, "generator", obj.gi_frame, obj.gi_code, fresh)


def _coroutine(recorder: Recorder, obj: CoroutineType[Any, Any, Any]) -> Reduction:
    fresh = inspect.getcoroutinestate(obj) == inspect.CORO_CREATED
    return _reduce(recorder, obj, "coroutine", obj.cr_frame, obj.cr_code, fresh)


def _async_generator(recorder: Recorder, obj: AsyncGeneratorType[Any, Any]) -> Reduction:
    frame = obj.ag_frame
    fresh = frame is not None and frame.f_lasti < _FIRST
    return _reduce(recorder, obj, "async_generator", frame, obj.ag_code, fresh)


async def _probe() -> Any:
    yield


_unstarted: Any = _probe()
# Where a frame stands before its first step differs between versions of Python.
_FIRST: int = _unstarted.ag_frame.f_lasti + 1

EXACT: dict[type, Reduce] = {
    GeneratorType: _generator,
    CoroutineType: _coroutine,
    AsyncGeneratorType: _async_generator,
}
