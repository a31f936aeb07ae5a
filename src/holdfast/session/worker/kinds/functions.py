"""Functions: their code as a place in source, their globals as they were, never a copy of them."""

from __future__ import annotations

import functools
import itertools
from types import CellType, CodeType, FunctionType

from holdfast.session.worker import rebuild
from holdfast.session.worker.kinds import modules
from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction
from holdfast.session.worker.placeholder import Placeholder
from holdfast.session.worker.snapshots import attributes_of, functions_of, wrapper


class Scope:
    """A module's globals inside a pickle: named, never copied."""

    def __init__(self, module: str) -> None:
        self.module = module

    def __reduce__(self) -> Reduction:
        return rebuild.namespace, (self.module,)


class Names:
    """The globals of a module that the session made: those of the module that is made again."""

    def __init__(self, module: object) -> None:
        self.module = module

    def __reduce__(self) -> Reduction:
        return modules.names, (self.module,)


def method(cls: type, name: str) -> FunctionType | Placeholder:
    """The function that a class has by that name, also a static one's."""
    own = attributes_of(cls)
    if "_holdfast_named" in own:  # what stands for a class that is missing, or is being made
        return Placeholder("function", f"{cls.__name__} is not there")
    return functions_of(own)[name]


def wrapped(cls: type, name: str) -> object:
    """The property, static or class method that a class has by that name."""
    own = attributes_of(cls)
    if "_holdfast_named" in own:
        return Placeholder("property", f"{cls.__name__} is not there")
    return own[name]


def function_state(function: FunctionType) -> dict[str, object]:
    """What a function's code does not say; empty for a plain one."""
    state: dict[str, object] = {}
    for name in ("__defaults__", "__kwdefaults__", "__annotations__", "__dict__"):
        value = getattr(function, name)
        if value:
            state[name] = value
    code = function.__code__
    documentation = code.co_consts[0] if code.co_consts else None
    expected = {
        "__name__": code.co_name,
        "__qualname__": code.co_qualname,
        "__module__": function.__globals__.get("__name__"),
        "__doc__": documentation if isinstance(documentation, str) else None,
    }
    for name, value in expected.items():
        if getattr(function, name) != value:
            state[name] = getattr(function, name)
    return state


def _function(recorder: Recorder, obj: FunctionType) -> Reduction:
    reference = recorder.reference(obj)
    if reference is not None:
        return reference
    scope: object = obj.__globals__
    if scope is vars(rebuild):  # nearly every record names one, and all are found by their names
        recorder.local(obj)
        return NotImplemented
    if scope is recorder.namespace:
        found = recorder.method(obj) if "." in obj.__qualname__ else None
        if found is not None:
            recorder.local(obj)
            return method, found
        scope = Scope("__main__")
    else:
        owner = modules.owner_of(obj.__globals__)
        name = None if owner is None else modules.import_name(owner)
        if name is not None and recorder.by_value(obj) is NotImplemented:
            recorder.local(obj)
            return NotImplemented
        if owner is not None:
            scope = Names(owner) if name is None else Scope(name)
    recorder.enclosed(obj)
    arguments = (obj.__code__, scope, obj.__name__, obj.__closure__)
    state = function_state(obj)
    if "__defaults__" in state:
        state["__defaults__"] = recorder.defaults(obj)
    return rebuild.function, arguments, state or None, None, None, rebuild.set_function


def _wrapped(recorder: Recorder, obj: object) -> Reduction:
    """One that the source of a class makes is that of the class."""
    found = wrapper(obj, recorder.method)
    if found is None:
        return recorder.plain(obj)
    recorder.local(obj)
    return wrapped, found


def _code(recorder: Recorder, obj: CodeType) -> Reduction:
    place = recorder.place(obj)
    if place is None:
        return recorder.plain(_without_secrets(recorder, obj))
    return rebuild.code, place


def _without_secrets(recorder: Recorder, code: CodeType) -> CodeType:
    """Code without source, without the texts that it gives to variables called like secrets."""
    if not any(type(value) is str or type(value) is bytes for value in code.co_consts):
        return code
    import dis

    between = ("COPY", "EXTENDED_ARG", "NOP")  # `a = b = "..."` copies it
    steps = [each for each in dis.get_instructions(code) if each.opname not in between]
    kept = list(code.co_consts)
    for at, load in enumerate(steps):
        if load.opname != "LOAD_CONST" or load.arg is None:
            continue
        after = steps[at + 1 : at + 3]
        if len(after) > 1 and after[1].opname == "STORE_ATTR":  # of what is loaded between
            after = after[1:]
        for store in itertools.takewhile(lambda step: step.opname.startswith("STORE_"), after):
            # Several names, where one step stores twice, or stores and loads.
            names = store.argval if isinstance(store.argval, tuple) else (store.argval,)
            for name in names:
                (kept[load.arg],) = recorder.without((name,), (kept[load.arg],))
    same = all(now is before for now, before in zip(kept, code.co_consts, strict=True))
    return code if same else code.replace(co_consts=tuple(kept))


def _cell(recorder: Recorder, obj: CellType) -> Reduction:
    try:
        contents = (recorder.contents(obj),)
    except ValueError:
        return rebuild.cell, ()
    return rebuild.cell, (), contents, None, None, rebuild.set_cell


EXACT: dict[type, Reduce] = {
    FunctionType: _function,
    CodeType: _code,
    CellType: _cell,
    property: _wrapped,
    functools.cached_property: _wrapped,
    staticmethod: _wrapped,
    classmethod: _wrapped,
}
