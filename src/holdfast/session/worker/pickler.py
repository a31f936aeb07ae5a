"""Writing a record: cloudpickle's reducers, with definitions as references and no failures.

A node that cannot be saved becomes a placeholder inside the pickle, in the same pass, so
it costs nothing but itself. Functions keep the session's namespace as their globals; their
code is a place in source wherever it has one.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from holdfast.session.worker import rebuild
from holdfast.session.worker.codes import CodeIndex, Place
from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.placeholder import Placeholder, describe
from holdfast.session.worker.reasons import message_line, secret_texts
from holdfast.session.worker.runner import type_module, type_name
from holdfast.session.worker.secrets import SHORTEST, secret, secret_name, secret_value, suspect

# `Any` is what pickle's protocol gives: a reduction is a string or a tuple of 2 to 6 things.
Reduction = Any

# Their types load what they dump, and loading gigabytes of them back would only take time.
_LIBRARIES = {*sys.stdlib_module_names, "numpy", "pandas", "polars", "pyarrow", "sklearn", "torch"}
DEEP = 10_000  # recursion limit for the second attempt at a deep object
_WRAPPED = {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "cache_parameters"}
_LOCK, _RLOCK = type(threading.Lock()), type(threading.RLock())


class Hole(NamedTuple):
    """A node that could not be saved."""

    identity: int
    type_name: str
    reason: str


class TooLarge(Exception):
    """The item is larger than the limit for one item."""


class Output:
    """Takes a pickle as it grows: frames, and large payloads as the objects that they are."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._size = 0
        self._pieces: list[bytes] = []
        # An array's memory is not text; looking for secrets in gigabytes of it takes seconds.
        self.raw: dict[int, bytes] = {}

    def write(self, data: Any, /) -> int:
        piece = data if type(data) is bytes else bytes(data)
        self._size += len(piece)
        if self._limit is not None and self._size > self._limit:
            raise TooLarge(f"larger than the limit of {self._limit} bytes for one item")
        self._pieces.append(piece)
        return len(piece)

    def data(self) -> bytes:
        return b"".join(self._pieces)

    def suspect(self) -> bool:
        """Whether there may be a secret in it."""
        return any(suspect(piece) for piece in self._pieces if id(piece) not in self.raw)


class Surroundings(NamedTuple):
    """What a record may refer to instead of containing it."""

    namespace: dict[str, object]
    codes: CodeIndex
    labels: Mapping[int, str]  # id of a class or function -> the label of its definition
    limit: int | None = None
    known: frozenset[str] = frozenset()  # secrets, not to be told in reasons either


class RecordPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles one record and notes what it met."""

    def __init__(self, output: Output, around: Surroundings) -> None:
        super().__init__(output, protocol=5)
        self._output = output
        self._around = around
        self.holes: list[Hole] = []
        self.places: set[Place] = set()
        self.references: set[int] = set()
        self.hidden: dict[int, str] = {}
        self.secrets: list[str] = []
        self.notes: list[str] = []
        self.portable = True
        self.unsure = False  # whether reading it back runs code that may refuse

    def reducer_override(self, obj: Any) -> Reduction:
        kind = type(obj)
        special = _SPECIAL.get(kind)
        if special is not None:
            return special(self, obj)
        if issubclass(kind, type):
            return self._reference(obj) or super().reducer_override(obj)
        if kind.__name__ == "ndarray" and type_module(kind) == "numpy":
            return self._array(obj, kind)
        if issubclass(kind, Placeholder):
            name, reason, _, _ = describe(obj)
            return self._hole(obj, name, reason)
        return self._guarded(obj, kind)

    def _guarded(self, obj: Any, kind: type) -> Reduction:
        reducer = self.dispatch_table.get(kind)
        try:
            reduced = reducer(obj) if reducer is not None else obj.__reduce_ex__(5)
        except Interrupted:
            raise
        except BaseException as error:  # noqa: BLE001  # user code; the hole says what it was
            known = self._around.known | secret_texts(_attributes(obj))
            return self._hole(obj, type_name(obj), message_line(error, known))
        self.unsure = self.unsure or not _trusted(kind)
        if isinstance(reduced, str) and not _reachable(obj, reduced):
            return self._hole(obj, type_name(obj), f"it cannot be found as {reduced}")
        return reduced

    def _reference(self, obj: object) -> Reduction:
        label = self._around.labels.get(id(obj))
        if label is None:
            return None
        self.references.add(id(obj))
        return rebuild.definition, (label,)

    def _function(self, obj: FunctionType) -> Reduction:
        reference = self._reference(obj)
        if reference is not None:
            return reference
        scope = obj.__globals__
        name = scope.get("__name__")
        if scope is self._around.namespace:
            name = "__main__"
        else:
            reduced = super().reducer_override(obj)
            if reduced is NotImplemented:
                self.references.add(id(obj))
                return reduced
            module = sys.modules.get(name) if isinstance(name, str) else None
            if module is None or module.__dict__ is not scope:
                return reduced  # its globals belong to no module: cloudpickle's copy has to do
        arguments = (obj.__code__, Scope(str(name)), obj.__name__, obj.__closure__)
        state = function_state(obj)
        return rebuild.function, arguments, state or None, None, None, rebuild.set_function

    def _code(self, obj: CodeType) -> Reduction:
        place = self._around.codes.locate(obj)
        if place is None:
            self.portable = False
            return self._guarded(obj, CodeType)
        self.places.add(place)
        return rebuild.code, tuple(place)

    def _closure(self, obj: CellType) -> Reduction:
        try:
            contents = (obj.cell_contents,)
        except ValueError:
            return rebuild.cell, ()
        return rebuild.cell, (), contents, None, None, rebuild.set_cell

    def _module(self, obj: ModuleType) -> Reduction:
        if obj.__dict__ is self._around.namespace:
            return rebuild.module, ("__main__",)
        return self._guarded(obj, ModuleType)

    def _lock(self, obj: Any) -> Reduction:
        if obj.locked():
            return self._hole(obj, type_name(obj), "somebody holds it")
        return threading.Lock, ()

    def _rlock(self, obj: Any) -> Reduction:
        if "owner=0" not in repr(obj):
            return self._hole(obj, type_name(obj), "somebody holds it")
        return threading.RLock, ()

    def _file(self, obj: Any) -> Reduction:
        # cloudpickle would put a copy of the file's content in its place, and say nothing.
        for name in ("stdout", "stderr", "stdin"):
            if obj is getattr(sys, name):
                return getattr, (sys, name)
        return self._hole(obj, type_name(obj), "open files are not brought back")

    def _cache(self, obj: Any) -> Reduction:
        self.notes.append(f"the cache of {obj.__wrapped__.__name__} starts empty")
        parameters = obj.cache_parameters()
        arguments = (obj.__wrapped__, parameters["maxsize"], parameters["typed"])
        # `cache_parameters` and what `functools.wraps` copies are made anew.
        own = {k: v for k, v in vars(obj).items() if k not in _WRAPPED}
        return rebuild.cached, arguments, own or None

    def _array(self, obj: Any, kind: type) -> Reduction:
        """A view goes together with the array that owns its memory, so that it stays a view."""
        root = obj
        while type(root.base) is kind:
            root = root.base
        if root is obj:
            # Not `__reduce_ex__(5)`: an array read from that does not own its memory, and
            # then `resize` fails.
            return self._owner(obj)
        if obj.dtype.hasobject or not (root.flags.c_contiguous or root.flags.f_contiguous):
            self.notes.append("a view of an array comes back as a copy")
            return self._owner(obj)
        offset = obj.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        place = (offset, obj.shape, obj.strides, obj.dtype, bool(obj.flags.writeable))
        return rebuild.view, (root, *place)

    def _owner(self, obj: Any) -> Reduction:
        reduced = obj.__reduce__()
        memory = reduced[2][-1]
        if type(memory) is bytes and obj.dtype.kind in "biufcmM":
            self._output.raw[id(memory)] = memory
        return reduced

    def _memory(self, obj: memoryview) -> Reduction:
        self.notes.append("a memoryview comes back over a copy of its bytes")
        if obj.format != "B" or obj.ndim != 1:
            return self._hole(obj, "memoryview", "only views of single bytes are brought back")
        return memoryview, (obj.tobytes() if obj.readonly else bytearray(obj),)

    def _hole(self, obj: object, name: str, reason: str) -> Reduction:
        self.holes.append(Hole(id(obj), name, reason))
        return rebuild.placeholder, (name, reason)


class SecretPickler(RecordPickler):
    """The slower pickler, used where a first look found what may be a secret."""

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        kind = type(obj)
        if kind is dict:
            for key, value in obj.items():
                if type(key) is not str or not secret(key, value) or len(value) < SHORTEST:
                    continue
                # {"password": "password"}: the interpreter has one object for both.
                if isinstance(value, bytes) or not secret_name(value):
                    self.hidden[id(value)] = key
        elif kind is str or kind is bytes:
            name = self.hidden.get(id(obj))
            if name is None and secret_value(obj):
                name = "key"
            if name is not None:
                self.secrets.append(name)
                return ("secret", name)
        return None


class Scope:
    """A function's globals inside a pickle: named, never copied."""

    def __init__(self, module: str) -> None:
        self.module = module

    def __reduce__(self) -> Reduction:
        return rebuild.namespace, (self.module,)


@functools.cache
def _trusted(kind: type) -> bool:
    """Whether instances are known to load what they dump: plain objects and known libraries."""
    if type_module(kind).partition(".")[0] in _LIBRARIES:
        return True
    names = ("__reduce_ex__", "__reduce__", "__setstate__", "__new__")
    return all(getattr(kind, name, None) is getattr(object, name, None) for name in names)


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


def _reachable(obj: object, name: str) -> bool:
    module = sys.modules.get(pickle.whichmodule(obj, name))  # type: ignore[attr-defined]
    found: object = module
    for step in name.split("."):
        found = getattr(found, step, None)
    return found is obj


def _attributes(obj: object) -> dict[str, object]:
    """An object's own attributes, without asking the object."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


_SPECIAL: dict[type, Callable[[RecordPickler, Any], Reduction]] = {
    FunctionType: RecordPickler._function,
    CodeType: RecordPickler._code,
    CellType: RecordPickler._closure,
    ModuleType: RecordPickler._module,
    _LOCK: RecordPickler._lock,
    _RLOCK: RecordPickler._rlock,
    io.TextIOWrapper: RecordPickler._file,
    memoryview: RecordPickler._memory,
    type(functools.lru_cache(len)): RecordPickler._cache,
}
# Found by name in their modules: the pickler's own way is safe and quick.
_SPECIAL[BuiltinFunctionType] = lambda pickler, obj: pickler._guarded(obj, BuiltinFunctionType)


class Attempt(NamedTuple):
    """A pickled record and what the pickler met."""

    data: bytes
    pickler: RecordPickler
    suspect: bool


def pickle_record(
    values: tuple[object, ...],
    around: Surroundings,
    hidden: Mapping[int, str] | None = None,
) -> Attempt:
    """Pickle these values into one record. Raises whatever the pickler cannot turn into a hole."""
    kind = RecordPickler if hidden is None else SecretPickler
    try:
        return _attempt(kind, values, around, hidden or {})
    except (RecursionError, pickle.PicklingError) as error:
        if not isinstance(error.__cause__ or error, RecursionError):
            raise
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEP))
    try:
        return _attempt(kind, values, around, hidden or {})
    finally:
        sys.setrecursionlimit(before)


def _attempt(
    kind: type[RecordPickler],
    values: tuple[object, ...],
    around: Surroundings,
    hidden: Mapping[int, str],
) -> Attempt:
    output = Output(around.limit)
    pickler = kind(output, around)
    pickler.hidden.update(hidden)
    pickler.dump(values)
    # The second pickler has looked already.
    return Attempt(output.data(), pickler, kind is RecordPickler and output.suspect())
