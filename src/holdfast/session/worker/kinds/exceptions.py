"""Exceptions with their causes, contexts and tracebacks, whatever their `__init__` asks for."""

from __future__ import annotations

from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from holdfast.session.worker import rebuild
from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction

_NOTE = "its traceback has the places, but not the variables of the functions"
_NAMED = (NameError, AttributeError)  # they tell which; pickle forgets it
_FRAMES = 1000  # of a traceback; an endless recursion has no more to say after that


def exception(cls: type[BaseException], args: tuple[object, ...]) -> BaseException:
    """An exception with these arguments; its `__init__`, which may want others, is not called."""
    made = cls.__new__(cls, *args)
    made.args = args
    return made


# `Any`: a state is what the class's own reduction says.
def set_exception(made: BaseException, state: dict[str, Any]) -> None:
    """Give an exception its attributes and what it came from."""
    own = state.get("own")
    if own is not None:
        made.__setstate__(own)
    if "cause" in state:
        made.__cause__ = state["cause"]
    if "context" in state:
        made.__context__ = state["context"]
    made.__suppress_context__ = state.get("suppress", False)
    if "name" in state:
        made.name = state["name"]  # type: ignore[attr-defined]  # of a NameError and the like
    if "traceback" in state:
        made.__traceback__ = state["traceback"]


def traceback(places: list[tuple[str, str, int]]) -> TracebackType | None:
    """A traceback that shows these places: file, function and line of each."""
    made: TracebackType | None = None
    for filename, name, line in reversed(places):
        stub = compile("raise Exception", filename, "exec")
        stub = stub.replace(co_name=name, co_qualname=name)
        # No instruction: the columns of the stub are not those of the code that failed.
        made = TracebackType(made, _frame(stub), -1, line)
    return made


def _frame(code: CodeType) -> FrameType:
    """The frame of code that raises."""
    try:
        exec(code, {})
    except Exception as error:  # noqa: BLE001  # made for its frame
        step = error.__traceback__
        while step is not None and step.tb_frame.f_code is not code:
            step = step.tb_next
        if step is not None:
            return step.tb_frame
    raise RuntimeError("the code did not raise")


def _exception(recorder: Recorder, obj: BaseException) -> Reduction:
    kind = type(obj)
    reduced = recorder.plain(obj)
    if not isinstance(reduced, tuple) or reduced[0] is rebuild.placeholder or len(reduced) > 3:
        return reduced
    make, arguments = reduced[:2]
    if kind.__reduce__ is BaseException.__reduce__ and type(kind.__init__) is FunctionType:
        make, arguments = exception, (kind, obj.args)
    found: dict[str, object] = {
        "own": reduced[2] if len(reduced) > 2 else None,
        "cause": obj.__cause__,
        "context": obj.__context__,
        "traceback": obj.__traceback__,
        "suppress": obj.__suppress_context__,
        "name": getattr(obj, "name", None) if isinstance(obj, _NAMED) else None,
    }
    if isinstance(obj, AttributeError) and obj.obj is not None:
        recorder.note("without the object that lacked the attribute")
    state = {name: value for name, value in found.items() if value}
    return (make, arguments, state, None, None, set_exception) if state else (make, arguments)


def _traceback(recorder: Recorder, obj: TracebackType) -> Reduction:
    recorder.note(_NOTE)
    places: list[tuple[str, str, int]] = []
    step: TracebackType | None = obj
    while step is not None and len(places) < _FRAMES:
        code = step.tb_frame.f_code
        places.append((code.co_filename, code.co_qualname, step.tb_lineno))
        step = step.tb_next
    return traceback, (places,)


EXACT: dict[type, Reduce] = {TracebackType: _traceback}
FAMILIES: list[tuple[type, Reduce]] = [(BaseException, _exception)]
