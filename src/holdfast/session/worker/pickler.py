"""Writing a record: cloudpickle's reducers, with definitions as references and no failures.

A node that cannot be saved becomes a placeholder inside the pickle, in the same pass, so
it costs nothing but itself.
"""

from __future__ import annotations

import copyreg
import functools
import pickle
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from holdfast.model.secrets import UNNAMED, secret_value
from holdfast.session.worker import rebuild
from holdfast.session.worker.findings import Findings, Hole
from holdfast.session.worker.flat import Flat, lay_flat
from holdfast.session.worker.forks import Held, is_held, name_of
from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.kinds.arrays import LARGE
from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction
from holdfast.session.worker.kinds.families import family
from holdfast.session.worker.kinds.filled import as_it_is
from holdfast.session.worker.kinds.memory import address
from holdfast.session.worker.kinds.pairs import Pair
from holdfast.session.worker.memory.tracker import Place
from holdfast.session.worker.missing import Missing, again, named
from holdfast.session.worker.output import Output, TooLarge
from holdfast.session.worker.placeholder import LeftOut, Placeholder, describe
from holdfast.session.worker.reasons import message_line, secret_texts
from holdfast.session.worker.secrets import defaults, redact, without
from holdfast.session.worker.sharing import Memo
from holdfast.session.worker.surroundings import Surroundings
from holdfast.session.worker.texts import type_module, type_name
from holdfast.session.worker.threads import alone

# Their types load what they dump, and loading gigabytes of them back would only take time.
_LIBRARIES = {
    *sys.stdlib_module_names, "catboost", "holdfast", "jax", "jaxlib", "keras", "lightgbm", "numpy",
    "pandas", "polars", "pyarrow", "sklearn", "torch", "xgboost",
}  # fmt: skip
_MRO = type.__dict__["__mro__"].__get__  # without asking the class


class RecordPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles one record and notes what it met."""

    def __init__(self, output: Output, around: Surroundings) -> None:
        self.found = Findings()
        # No method of this pickler: it would hold itself, and all that it has met, for good.
        take = partial(_take_buffer, output, around, self.found)
        super().__init__(output, protocol=5, buffer_callback=take)
        self._output = output
        self._around = around
        self._families: dict[type, Reduce | None] = around.families
        self._at = around.at
        self.namespace = around.namespace
        self.apart = around.apart
        self.pairs = around.pairs
        self.threaded = around.threads > 0 or not alone()
        self._variables: dict[int, str] = {}  # of functions around others, by id of their cells

    def reducer_override(self, obj: Any) -> Reduction:
        kind = type(obj)
        if self.apart:
            self._at[0] = id(kind)  # if the process stands still, it is there
        try:
            reduce = self._families[kind]
        except KeyError:
            reduce = _meet(self._around, kind)
        if reduce is None:
            if issubclass(kind, Placeholder):
                return self._placeholder(obj)
            if kind is LeftOut:
                return self._left_out(obj)
            return self.plain(obj)
        try:
            return reduce(self, obj)
        except (Interrupted, TooLarge):
            raise
        except BaseException as error:  # noqa: BLE001  # user code; the hole says what it was
            return self._failed(obj, error)

    # -- for the families (kinds/contract.py) --------------------------------------------

    def plain(self, obj: Any) -> Reduction:
        kind = type(obj)
        reducer = self.dispatch_table.get(kind)
        try:
            reduced = reducer(obj) if reducer is not None else obj.__reduce_ex__(5)
        except (Interrupted, TooLarge):
            raise
        except BaseException as error:  # noqa: BLE001  # user code; the hole says what it was
            return self._failed(obj, error)
        module = _module_of(obj, reduced) if isinstance(reduced, str) else "__main__"
        if module is None:
            return self.hole(obj, f"it cannot be found as {reduced}")
        if module != "__main__":  # by its name it is found again, and nothing else is read
            self.found.references.add(id(obj))
            return reduced
        self.found.unsure = self.found.unsure or not _trusted(kind)  # type: ignore[arg-type]  # types are hashable
        if not isinstance(reduced, str):
            reduced = self._by_names(obj, kind, reduced)
        if isinstance(reduced, str):  # it is the name itself that is to come back
            return copyreg.__newobj__, (kind,), obj.__getstate__()  # type: ignore[attr-defined]
        if _has_no_state(reduced):
            name = _name_in_module(obj)
            if name is not None:
                self.found.references.add(id(obj))
                return rebuild.named, (type_module(kind), name)
        return as_it_is(kind, reduced)

    def by_value(self, obj: Any) -> Reduction:
        return super().reducer_override(obj)

    def hole(self, obj: object, reason: str) -> Reduction:
        name = type_name(obj)
        self.found.holes.append(Hole(id(obj), name, reason))
        return rebuild.placeholder, (name, reason)

    def note(self, text: str) -> None:
        self.found.notes.append(text)

    def unproven(self) -> None:
        self.found.held = True

    def end(self, pair: Pair, side: int) -> None:
        self.found.ends.add((pair, side))

    def missing(self, obj: type) -> Reduction:
        module, name, reason = named(obj)
        self.found.holes.append(Hole(id(obj), f"{module}.{name}", reason, True))
        return rebuild.named, (module, name)

    def local(self, obj: object) -> None:
        self.found.references.add(id(obj))

    def reference(self, obj: object) -> Reduction:
        label = self._around.labels.get(id(obj))
        if label is None:
            return None
        self.found.references.add(id(obj))
        return rebuild.definition, (label,)

    def outer(self, obj: type) -> tuple[type, str] | None:
        return self._around.outer(obj)

    def method(self, obj: FunctionType) -> tuple[type, str] | None:
        return self._around.method(obj)

    def place(self, code: CodeType) -> tuple[object, ...] | None:
        place = self._around.codes.locate(code)
        if place is None:
            self.found.portable = False
            return None
        self.found.places.add(place)
        return tuple(place)

    def enclosed(self, function: FunctionType) -> None:
        if function.__closure__:
            cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
            self._variables.update((id(cell), name) for name, cell in cells)

    def contents(self, cell: CellType) -> object:
        return self.without((self._variables.get(id(cell)),), (cell.cell_contents,))[0]

    def without(self, names: Iterable[object], values: Iterable[object]) -> tuple[object, ...]:
        return without(self._around.rule, names, values)

    def defaults(self, function: FunctionType) -> tuple[object, ...] | None:
        return defaults(self._around.rule, function)

    def lost(self, source: str) -> tuple[str, ...]:
        return tuple(name for _, name in redact(source, self._around.rule)[1])

    def buffer(self, address: int, size: int, owner: object) -> str:
        return _buffer(self._output, self._around, self.found, (address, size), owner)

    def copied(self, made: Any) -> str:
        self._output.grow(made.nbytes)
        label = self._around.copied(made)
        self.found.used[label] = None
        return label

    def block(self, array: Any) -> str | None:
        label = self._around.block(array)
        if label is not None:
            self._output.grow(self._around.places[label][1])
            self.found.used[label] = None
        return label

    def raw(self, data: bytes) -> None:
        self._output.raw[id(data)] = data

    def check_size(self, size: int) -> None:
        self._output.check(size)

    # -- underneath ----------------------------------------------------------------------

    def _by_names(self, obj: Any, kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        """A reduction without the secrets that it does not tell the names of."""
        if type(reduced) is not tuple or len(reduced) < 2 or type(reduced[1]) is not tuple:
            return reduced  # it is pickle that says so
        make, arguments, *rest = reduced
        if kind is partial and rest and type(rest[0]) is tuple:
            function, given, *others = rest[0]
            code = getattr(function, "__code__", None)
            names = code.co_varnames[: code.co_argcount][: len(given)] if code is not None else ()
            given = (*self.without(names, given[: len(names)]), *given[len(names) :])
            return make, arguments, (function, given, *others), *rest[1:]
        names = field_names(kind)
        if not names:
            return reduced
        if issubclass(kind, tuple) and len(arguments) == len(names) + 1:
            return make, (arguments[0], *self.without(names, arguments[1:])), *rest
        if rest and type(rest[0]) in (list, tuple) and len(rest[0]) == len(names):
            state = self.without(names, rest[0])  # of a frozen dataclass with slots
            return make, arguments, type(rest[0])(state), *rest[1:]
        return reduced

    def _left_out(self, obj: LeftOut) -> Reduction:
        self._output.alarming = True  # a second look is due, which leaves it out
        return rebuild.placeholder, ("str", obj.name)

    def _placeholder(self, obj: Placeholder) -> Reduction:
        name, reason, _, secret = describe(obj)
        if secret is not None:
            self._output.alarming = True
        revives = isinstance(obj, Missing)
        self.found.holes.append(Hole(id(obj), name, reason, revives))
        return again(obj) if isinstance(obj, Missing) else (rebuild.placeholder, (name, reason))

    def _failed(self, obj: object, error: BaseException) -> Reduction:
        known = self._around.known | secret_texts(_attributes(obj))
        return self.hole(obj, message_line(error, known))


class ReferencePickler(RecordPickler):
    """The slower pickler: some objects are only named in the record, secrets are left out.

    A text that has the format of a key is left out wherever it is met. Other secrets are told by
    the names that they stand under, so the place is left out and not the text: a dict with such
    entries becomes a reference with all that is in it, since pickle asks for nothing else that is
    in a dict by its place.
    """

    def __init__(
        self, output: Output, around: Surroundings, table: Mapping[int, str], searching: bool
    ) -> None:
        super().__init__(output, around)
        self._table = table
        self._searching = searching
        self.met: dict[int, object] = {}  # what the record only names
        self.nodes: dict[int, int] = {}  # of a structure that is laid flat: their numbers by id
        self.filled: dict[int, tuple[int, object]] = {}  # dicts that lost something, by id
        # Dicts that lose nothing. The pickler's memo holds them, so that their ids stay theirs.
        self._innocent: set[int] = set()
        self._data: dict[int, tuple[frozenset[str], object]] = {}  # names that say nothing

    def persistent_id(self, obj: Any) -> tuple[object, ...] | None:
        node = self.nodes.get(id(obj))
        if node is not None:
            return ("node", node)
        label = self._table.get(id(obj))
        if label is not None:
            self.met[id(obj)] = obj
            self.found.used[label] = None
            return ("object", label)
        if not self._searching:
            return None
        kind = type(obj)
        if kind is str or kind is bytes:
            around = self._around
            if around.rule.keep_all or id(obj) in around.spared or not secret_value(obj):
                return None
            return self._secret(UNNAMED, kind is bytes)
        if kind is dict:
            return self._dict(obj)
        if kind is LeftOut:
            return self._secret(obj.name, obj.binary)
        if kind is Placeholder:
            name, _, _, secret = describe(obj)
            return None if secret is None else self._secret(secret, name == "bytes")
        return None

    def block(self, array: Any) -> str | None:
        return None if self._searching else super().block(array)

    def without(self, names: Iterable[object], values: Iterable[object]) -> tuple[object, ...]:
        if self._searching and self._around.rule.keep:
            pairs = list(zip(names, values, strict=True))
            names, values = zip(*pairs, strict=True) if pairs else ((), ())
            for name, value in pairs:
                if self._around.rule.kept(name):
                    self._around.spared[id(value)] = value
        return super().without(names, values)

    def _secret(self, name: str, binary: bool) -> tuple[object, ...]:
        self.found.secrets.append(name)
        return ("secret", name, "bytes") if binary else ("secret", name)

    def _dict(self, obj: dict[Any, Any]) -> tuple[object, ...] | None:
        """A reference to a dict that loses something, with what is left the first time."""
        identity = id(obj)
        if identity in self._innocent:
            return None
        known = self.filled.get(identity)
        if known is not None:
            return ("filled", known[0])
        rule, (names, _) = self._around.rule, self._data.get(identity, (_NO_NAMES, None))
        losing = False
        for key, value in obj.items():
            kind = type(value)
            if (kind is str or kind is bytes) and type(key) is str and key not in names:
                if rule.kept(key):
                    self._around.spared[id(value)] = value
                else:
                    losing = losing or rule.secret(key, value)
        if not losing:
            self._innocent.add(identity)
            return None
        number = len(self.filled)
        self.filled[identity] = number, obj
        keys = [None if key in names else key for key in obj] if names else list(obj)
        values = self.without(keys, obj.values())
        return ("filled", number, [each for pair in zip(obj, values, strict=True) for each in pair])

    def _by_names(self, obj: Any, kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        reduced = super()._by_names(obj, kind, reduced)
        if not self._searching or type(reduced) is not tuple:
            return reduced
        if len(reduced) > 2 and type(reduced[2]) is dict:
            names = data_names(kind)
            if names:
                self._data[id(reduced[2])] = names, reduced[2]
        if issubclass(kind, dict) and len(reduced) > 4 and reduced[4] is not None:
            entries = dict(reduced[4])
            values = self.without(entries, entries.values())
            return *reduced[:4], zip(entries, values, strict=True), *reduced[5:]
        return reduced


_NO_NAMES: frozenset[str] = frozenset()


@functools.cache
def field_names(kind: type) -> tuple[str, ...]:
    """The fields of named tuples and dataclasses, whose values may be pickled without names."""
    found: Any = getattr(kind, "_fields", ()) if issubclass(kind, tuple) else ()
    found = found or getattr(kind, "__dataclass_fields__", ())
    if not found:
        found = [getattr(each, "name", None) for each in getattr(kind, "__attrs_attrs__", ())]
    names = tuple(found) if isinstance(found, (tuple, list, dict)) else ()
    return names if all(type(name) is str for name in names) else ()


@functools.cache
def data_names(kind: type) -> frozenset[str]:
    """The parameters of a library's estimator: their names are the library's, and say nothing."""
    if type_module(kind) == "__main__" or not callable(getattr(kind, "get_params", None)):
        return _NO_NAMES
    code = getattr(getattr(kind, "__init__", None), "__code__", None)
    if code is None:
        return _NO_NAMES
    return frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _buffer(
    output: Output, around: Surroundings, found: Findings, place: Place, owner: object
) -> str:
    """The label of memory that is kept beside a record."""
    address, size = place
    output.grow(size)
    # A library may have made it for this very record, in memory that was free a moment ago.
    around.met = True
    label = around.buffer(address, size, owner)
    found.used[label] = None
    return label


def _take_buffer(
    output: Output, around: Surroundings, found: Findings, buffer: pickle.PickleBuffer
) -> bool:
    """Whether a buffer stays in the pickle; a large one is kept beside it."""
    view = buffer.raw()
    if view.nbytes < LARGE:
        return True
    found.buffers.append(_buffer(output, around, found, (address(view), view.nbytes), view))
    return False


@functools.cache
def _trusted(kind: type) -> bool:
    """Whether instances are known to load what they dump: plain objects and known libraries."""
    if type_module(kind).partition(".")[0] in _LIBRARIES:
        return True
    # A hash may need what an object in a cycle has not got yet when it is put into a set.
    names = ("__reduce_ex__", "__reduce__", "__setstate__", "__new__")
    hashes: Any = kind.__hash__  # None for what has no hash
    if hashes is not None and hashes is not object.__hash__:
        return False
    return all(getattr(kind, name, None) is getattr(object, name, None) for name in names)


def _meet(around: Surroundings, kind: type) -> Reduce | None:
    """The family of a type, which this capture may have met before."""
    if kind not in around.families:
        reduce = family(kind)
        if is_held(kind, around.held):
            if around.apart:
                raise Held(name_of(kind))
            reduce = partial(_reduce_held, reduce)
        around.families[kind] = reduce
        around.ran = around.ran or _runs_code(kind)
    return around.families[kind]


def _reduce_held(reduce: Reduce | None, recorder: Recorder, obj: Any) -> Reduction:
    """An object that a fork of the process may stand still at: none tries to read it back."""
    recorder.unproven()
    return recorder.plain(obj) if reduce is None else reduce(recorder, obj)


def _runs_code(kind: type) -> bool:
    """Whether pickling instances may run the user's code, which may write to memory: what a class
    has for that, or how it is found, has too many names to be told from what it has for others."""
    return kind in copyreg.dispatch_table or any(
        type_module(each).partition(".")[0] not in _LIBRARIES for each in _MRO(kind)
    )


def _module_of(obj: object, name: str) -> str | None:
    """The module that has an object by that name."""
    module: str = pickle.whichmodule(obj, name)  # type: ignore[attr-defined]
    found: object = sys.modules.get(module)
    for step in name.split("."):
        found = getattr(found, step, None)
    return module if found is obj else None


def _has_no_state(reduced: tuple[Any, ...]) -> bool:
    """Whether nothing but its identity tells one such object from another."""
    return len(reduced[1]) <= 1 and not any(reduced[2:])


def _name_in_module(obj: object) -> str | None:
    """The name of one of a kind, such as `dataclasses.MISSING`, in the module of its class."""
    module = type_module(type(obj))
    if module in ("__main__", "builtins") or module not in sys.modules:
        return None
    for name, value in list(vars(sys.modules[module]).items()):
        if value is obj:
            return name
    return None


def _attributes(obj: object) -> dict[str, object]:
    """An object's own attributes, without asking the object."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


class Attempt(NamedTuple):
    """A pickled record and what the pickler met."""

    data: bytes
    found: Findings
    suspect: bool
    pickler: RecordPickler
    nodes: list[Any] | None = None  # of a structure that was laid flat

    @property
    def size(self) -> int:
        return len(self.data)

    def memo(self) -> Memo:
        """Every object in the record, by id; a new list each time."""
        found: dict[int, tuple[int, object]] = self.pickler.memo.copy()
        for node in self.nodes or ():
            found[id(node)] = (0, node)
        if isinstance(self.pickler, ReferencePickler):
            found.update(self.pickler.filled)
        return found


def pickle_record(
    values: tuple[object, ...],
    around: Surroundings,
    table: Mapping[int, str] | None = None,
    searching: bool = False,
    flat: bool = False,
) -> Attempt:
    """Pickle these values into one record. Raises whatever the pickler cannot turn into a hole.

    Objects in `table` are only named in it. When `searching`, secrets are left out. `flat` lays
    flat what is not too deep, too.
    """
    try:
        if not flat:
            return _attempt(values, around, table, searching)
    except (RecursionError, pickle.PicklingError) as error:
        if not isinstance(error.__cause__ or error, RecursionError):
            raise
    leave_out = partial(without, around.rule) if searching else None
    laid = lay_flat(values, table or {}, partial(_meet, around), leave_out)
    return _attempt(values, around, table, searching, laid)


def _attempt(
    values: tuple[object, ...],
    around: Surroundings,
    table: Mapping[int, str] | None,
    searching: bool,
    flat: Flat | None = None,
) -> Attempt:
    output = Output(around.limit)
    pickler: RecordPickler
    if not table and not searching and flat is None:
        pickler = RecordPickler(output, around)
        pickler.dump(values)
    else:
        pickler = ReferencePickler(output, around, table or {}, searching)
        if flat is not None:
            pickler.found.flat = True
            pickler.dump(flat.kinds)
            pickler.nodes = {id(node): number for number, node in enumerate(flat.nodes)}
            pickler.dump((flat.states, values))
        else:
            pickler.dump(values)
    # The pickler that looks for secrets has left them out already.
    suspicious = not searching and output.suspect(around.innocent)
    nodes = flat.nodes if flat is not None else None
    return Attempt(output.data(), pickler.found, suspicious, pickler, nodes)
