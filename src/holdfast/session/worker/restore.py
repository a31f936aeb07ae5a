"""Bringing a checkpoint back: imports, definitions in the order in which they ran, then data.

What a class needs while it is executed is loaded before, for that purpose only: executing
it may change such data (a decorator that registers, `__init_subclass__`), so in the end every
record is loaded from its bytes again. One item that cannot be brought back becomes a
placeholder and costs nothing else.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import platform
from collections.abc import Iterable, Mapping
from types import CodeType, FunctionType
from typing import Any

import msgspec

from holdfast.model.fault_points import fault_point
from holdfast.protocol.session_messages import FORMAT, ItemReport
from holdfast.session import layout
from holdfast.session.layout import (
    BEFORE_IMPORTS,
    DEFINITION,
    NAME,
    PATCH,
    STATE,
    Definition,
    Record,
)
from holdfast.session.worker import (
    circumstances,
    library_settings,
    options,
    randomness,
    rebuild,
    tiers,
)
from holdfast.session.worker.boot import grow_old
from holdfast.session.worker.cells import CellLog
from holdfast.session.worker.codes import CodeIndex, Place
from holdfast.session.worker.definitions import Definitions, Site
from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.items import Items
from holdfast.session.worker.kinds.arrays import location
from holdfast.session.worker.kinds.tensors import lasting_id
from holdfast.session.worker.labels import Labels
from holdfast.session.worker.memory.overlay import Overlay
from holdfast.session.worker.missing import missing_class
from holdfast.session.worker.objects import Objects, own_records
from holdfast.session.worker.placeholder import MARK, OLDER_MARK, Placeholder, describe
from holdfast.session.worker.remake import Remake, set_class
from holdfast.session.worker.unpickler import RecordUnpickler


class Restore:
    """One restore into an empty namespace."""

    def __init__(
        self,
        parts: Mapping[str, bytes],
        namespace: dict[str, object],
        cells: CellLog,
        codes: CodeIndex,
        definitions: Definitions,
        secrets: Mapping[str, str | bytes],
        labels: Labels | None = None,
        overlay: Overlay | None = None,
    ) -> None:
        self._overlay = overlay or Overlay({}, [])
        self.namespace = namespace
        self.secrets = secrets
        self.environment = layout.decode(parts["environment"], layout.Environment)
        if self.environment.format > FORMAT:
            raise ValueError(f"checkpoint format {self.environment.format} is newer than {FORMAT}")
        self._parts = parts
        self._sources = layout.decode(parts["sources"], layout.Sources)
        records = [
            record
            for name in sorted({*parts, *self._overlay})
            if layout.is_record(name)
            for record in layout.decode_records(self._part(name))
        ]
        self._records = own_records(records)
        self._objects = Objects(records, self._object_values)
        self._problems: dict[str, list[str]] = {}  # by label of an object, what it lacks
        python = self.environment.python
        self._same_python = layout.minor(python) == layout.minor(platform.python_version())
        self._other_python = "" if self._same_python else python
        self._cells = cells
        self._codes = codes
        self._definitions = definitions
        self._labels = labels or Labels()
        self._by_label = {entry.label: entry for entry in self._sources.definitions}
        self._by_name = {name: e for e in self._sources.definitions for name in (e.name, *e.names)}
        self._record_of = {member: r for r in self._records for member in r.members}
        captured = layout.decode(parts["report"], layout.ReportPart) if "report" in parts else None
        self._captured = {item.name: item for item in captured.items} if captured else {}
        self.lost: dict[str, str] = {}  # labels of definitions that could not be made, and why
        self._remake = Remake(namespace, cells, codes, self._ensure)
        self._making: set[str] = set()  # labels of definitions that are being made
        self._ahead: set[int] = set()  # records loaded ahead of their time
        self._memory: list[tuple[Any, str]] = []  # arrays, and the labels of their memory
        self._patches: dict[str, dict[str, Any]] = {}
        self._around: dict[str, Any] = {}  # what the session had changed in its process
        self._items = Items()
        self._final: dict[str, object] = {}

    def let_go(self) -> None:
        """It is over. What it has made is the session's, and it has parts that hold it: it would
        keep all of that until somebody collects garbage."""
        vars(self).clear()

    def run(self) -> tuple[ItemReport, ...]:
        """Fill the namespace and say what became of each name."""
        collecting = gc.isenabled()
        gc.disable()  # nothing becomes garbage, and looking for it takes long
        collects = False  # as the session wants it, which `_run` sets where the process is its own
        try:
            items = self._run()
            collects = collecting and self._definitions.circumstances is None
            return items
        except BaseException:
            collects = collecting
            raise
        finally:
            if collects:
                gc.enable()

    def _run(self) -> tuple[ItemReport, ...]:
        self._cells.replace(self._filled_cells())
        self._codes.clear()
        self._definitions.clear()
        randomness.forget()
        self.namespace.clear()
        self.namespace.update(
            __name__="__main__", __doc__=None, __spec__=None, __builtins__=builtins
        )
        fault_point("the old namespace is gone")
        if self._definitions.circumstances is not None:
            options.forget()
        self._set_circumstances(BEFORE_IMPORTS)
        for entry in self._sources.imports:
            fault_point("an import")
            self._import(entry)
        for definition in self._sources.definitions:
            fault_point("a definition")
            self.definition(definition.label)
        self._objects.forget()
        self._memory.clear()
        for record in self._records:
            fault_point("a record")
            self._load(record)
        # Executing a class binds its name, which may since have been deleted or bound anew.
        for name in {entry.name for entry in self._sources.definitions} - self._final.keys():
            self.namespace.pop(name, None)
        self.namespace.update(self._final)
        for name in self._captured:  # the order in which they came, which records do not have
            if name in self.namespace:
                self.namespace[name] = self.namespace.pop(name)
        fault_point("all records are loaded")
        for name, reason in self._definitions.patches.apply(self._patches).items():
            self._items.put(PATCH + name, "placeholder", "cloudpickle", reason)
        fault_point("the patches are applied")
        grow_old()
        rest = [each for each in circumstances.NAMES if each not in BEFORE_IMPORTS]
        self._set_circumstances(rest)
        fault_point("the process is set")
        self._labels.clear()
        for label, made in self._objects.made.items():
            self._labels.adopt_object(lasting_id(made), label)
        # Of several that were made of the same memory one has its label: they are no longer one.
        for label, array in {label: array for array, label in self._memory}.items():
            self._labels.adopt_memory(location(array), array.nbytes, label)
        for name, item in self._captured.items():
            if name.startswith(DEFINITION):  # of a class without a name
                self._items.add(item)
        return tuple(self._items.all())

    # -- for records (unpickler.py) ------------------------------------------------------

    def definition(self, label: str) -> object:
        """The class or function with that label, made on first use."""
        if label in self._remake.made:
            return self._remake.made[label]
        entry = self._by_label.get(label)
        if entry is None:
            return missing_class("@" + label, label, "its definition is not in the checkpoint")
        # A class that registers itself needs a list in which it is found. That list is loaded
        # again in the end, so for the moment something else may stand for the class.
        ahead = bool(self._making)
        if label in self._making:
            return missing_class("@" + label, entry.name, "it is just being made")
        self._making.add(label)
        try:
            made = self._remake.make(entry)
        except Interrupted:
            raise
        except BaseException as error:  # noqa: BLE001  # user code runs here; its failure is reported
            reason = self._reason(error)
            if ahead:  # it is tried again in its turn
                return missing_class("@" + label, entry.name, reason)
            return self._lose(entry, reason)
        finally:
            self._making.discard(label)
        if label.startswith("d"):
            site = Site(entry.kind, entry.name, entry.cell, entry.first, entry.last)
            self._definitions.adopt(label, site, made)
        before = self._captured.get(entry.names[0]) if entry.names else None
        reason = before.reason if before is not None else "from its source"
        if label in self._remake.undecorated:
            reason += "; its decorators were not run again"
        for name in entry.names:
            self._bind(name, made)
            self._items.put(name, "rebuilt", "source", reason)
        return made

    def code(self, place: Place) -> CodeType:
        """Code compiled from the kept source."""
        return self._codes.find(place)

    def shared(self, label: str) -> object:
        """An object that several records need."""
        return self._objects.get(label)

    def memory(self, label: str) -> memoryview:
        """Memory that is kept beside the records."""
        try:
            return self._part(layout.BUFFERS + label)
        except KeyError:
            raise LookupError(f"there is no memory {label} in the checkpoint") from None

    def lay(self, label: str, array: Any) -> bool:
        """Give an array its memory without reading it; False when it has to be copied."""
        return self._overlay.lay(layout.BUFFERS + label, array)

    def made_of(self, array: Any, label: str) -> None:
        """An array that has its memory from there."""
        self._memory.append((array, label))
        self._overlay.placed(location(array), array.nbytes, label)

    # -- underneath ----------------------------------------------------------------------

    def _part(self, name: str) -> memoryview:
        if name in self._overlay:
            return self._overlay.view(name)
        return memoryview(self._parts[name])

    def _ensure(self, name: str) -> bool:
        """Bring one name back now, if the checkpoint has it and it is not there yet."""
        entry = self._by_name.get(name)
        record = self._record_of.get(NAME + name)
        if entry is not None and entry.label not in self._remake.made:
            return False  # it comes later in the order, or is being made at this moment
        if entry is not None:
            record = record or self._record_of.get(DEFINITION + entry.label)
        if record is None or id(record) in self._ahead:
            return False
        self._ahead.add(id(record))
        self._load(record)
        return name in self.namespace

    def _import(self, entry: layout.Import) -> None:
        try:
            module = importlib.import_module(entry.module)
        except Interrupted:
            raise
        except BaseException as error:  # noqa: BLE001  # a library may fail in any way at import
            reason = self._reason(error)
            for name in entry.names:
                kind = f"module {entry.module}"
                again = Record(
                    members=(NAME + name,), tier="source", data=entry.module.encode(),
                    type_name=kind, reason=reason,
                )  # fmt: skip
                self._bind(name, Placeholder(kind, reason, layout.encode_record(again)))
                self._items.put(name, "placeholder", "source", reason)
            if not entry.names:
                self._items.put(entry.module, "placeholder", "source", reason)
            return
        self._definitions.imports.setdefault(entry.module, entry.statement)
        self._definitions.patches.imported(entry.module)  # before decorators run again
        library_settings.note()
        for name in entry.names:
            self._bind(name, module)
            before = self._captured.get(name)
            reason = f"import {entry.module}"
            changed = before is not None and before.reason.startswith(f"{reason};")
            reason = before.reason if changed and before else reason
            self._items.put(name, "rebuilt", "source", reason)

    def _load(self, record: Record) -> None:
        if record.tier == "secret":
            self._secret(record)
            return
        problems: list[str] = []
        try:
            record = _again(record)
            values, problems = self._values(record)
        except Interrupted:
            raise
        except BaseException as error:  # noqa: BLE001  # user code runs here; its failure is reported
            reason = self._reason(error)
            alone = len(record.members) == 1 and not record.uses
            data = layout.encode_record(record) if alone else b""
            kind = record.type_name or "value"
            values = tuple(Placeholder(kind, reason, data) for _ in record.members)
            record = msgspec.structs.replace(record, tier="placeholder", reason=reason)
        for member, value in zip(record.members, values, strict=True):
            kind, _, name = member.partition(":")
            match kind + ":":
                case layout.NAME:
                    self._bind(name, value)
                    self._items.read(
                        name, record, self._captured.get(name), problems, self._other_python
                    )
                case layout.DEFINITION:
                    self._set_state(name, value, problems)
                case layout.PATCH | layout.STATE:
                    self._beside(member, value)

    def _values(self, record: Record) -> tuple[tuple[object, ...], list[str]]:
        if record.tier == "source":
            return (importlib.import_module(str(record.data, "utf-8")),), []
        if record.tier != "cloudpickle":
            return tiers.read(record), []
        if not record.portable and not self._same_python:
            raise ValueError(f"it holds bytecode of Python {self._other_python}")
        unpickler = RecordUnpickler(record.data, self, self._same_python, record.buffers)
        values = unpickler.values(record.flat)
        if not isinstance(values, tuple) or len(values) != len(record.members):
            raise ValueError("the record does not hold what it says")
        missing = dict.fromkeys(unpickler.missing)
        for label in record.uses:
            missing |= dict.fromkeys(self._problems.get(label, ()))
        return values, list(missing)

    def _object_values(self, record: Record) -> tuple[object, ...]:
        """What an object's record, or a segment, holds; what it lacks is told to its users."""
        values, problems = self._values(record)
        if problems:
            for member in record.members:
                self._problems.setdefault(member.partition(":")[2], []).extend(problems)
        return values

    def _beside(self, member: str, value: object) -> None:
        """What belongs to modules and libraries, not to a variable."""
        kind, _, name = member.partition(":")
        if isinstance(value, Placeholder):
            self._items.put(member, "placeholder", "cloudpickle", "it could not be read")
        elif kind + ":" == PATCH and isinstance(value, dict):
            self._patches[name] = value
        elif name in circumstances.NAMES:
            self._around[name] = value
        elif kind + ":" == STATE:
            try:
                randomness.set_state(name, value)
            except Interrupted:
                raise
            except BaseException as error:  # noqa: BLE001  # a library may fail in any way
                self._items.put(member, "placeholder", "cloudpickle", self._reason(error))

    def _set_circumstances(self, names: Iterable[str]) -> None:
        """Make the process what it was, as far as the session had changed it."""
        known = self._definitions.circumstances
        for name in names if known is not None else ():
            fault_point("a part of the process")
            record = self._record_of.get(STATE + name)
            if record is not None and name not in self._around:
                self._load(record)
            try:
                assert known is not None
                known.apply(name, self._around.get(name))
            except Interrupted:
                raise
            except BaseException as error:  # noqa: BLE001  # a library, or the system, may refuse
                self._items.put(STATE + name, "placeholder", "cloudpickle", self._reason(error))

    def _set_state(self, label: str, state: object, problems: list[str]) -> None:
        if label not in self._remake.made:
            return  # loaded ahead of its definition; it is loaded again after it
        made, entry = self._remake.made[label], self._by_label.get(label)
        found = list(problems)
        try:
            if isinstance(state, dict) and type(made) is FunctionType:
                rebuild.set_function(made, state)
            elif isinstance(state, dict) and isinstance(made, type):
                found += set_class(made, state)
        except Interrupted:
            raise
        except BaseException as error:  # noqa: BLE001  # a metaclass is user code
            found.append(f"what its source does not say is lost: {self._reason(error)}")
        if isinstance(state, Placeholder):
            found.append("what its source does not say is lost")
        for name in entry.names if entry is not None and found else ():
            before = self._items[name]
            reason = "; ".join(dict.fromkeys([*before.reason.split("; "), *found]))
            self._items.put(name, before.outcome, "source", reason)

    def _secret(self, record: Record) -> None:
        from holdfast.session.worker.secrets import again  # most restores meet none

        for member in record.members:
            name = member.removeprefix(NAME)
            called = bytes(record.data).decode() or name
            found = again(self.secrets, called, record.type_name == "bytes")
            if type(found) is Placeholder:
                reason = describe(found)[1]
                self._items.put(name, "placeholder", "secret", reason, secrets=(called,))
            else:
                reason = "a secret that was given again"
                self._items.put(name, "rebuilt", "secret", reason, secrets=(called,))
            self._bind(name, found)

    def _filled_cells(self) -> tuple[layout.Cell, ...]:
        """The source, with the secrets that were given again put back in."""
        cells, older = self._sources.cells, self._sources.left_out is None
        if not any(MARK in each.text or (older and OLDER_MARK in each.text) for each in cells):
            return cells
        from holdfast.session.worker.secrets import filled, install

        install()
        return tuple(
            msgspec.structs.replace(each, text=filled(each.text, self.secrets, older))
            for each in cells
        )

    def _lose(self, entry: Definition, reason: str) -> object:
        made = missing_class("@" + entry.label, entry.name, reason)
        self.lost[entry.label] = reason
        self._remake.made[entry.label] = made
        self._definitions.lose(entry)
        for name in entry.names:
            self._bind(name, Placeholder(f"{entry.kind} {entry.name}", reason))
            self._items.put(name, "placeholder", "source", reason)
        return made

    def _reason(self, error: BaseException) -> str:
        # With all that finds secrets in a text; most restores meet no error.
        from holdfast.session.worker.reasons import reason_of
        from holdfast.session.worker.secrets import SHORTEST

        texts = (
            value if isinstance(value, str) else value.decode("utf-8", "replace")
            for value in self.secrets.values()
        )
        known = [text for text in texts if len(text) >= SHORTEST]
        return reason_of(error, known)

    def _bind(self, name: str, value: object) -> None:
        self.namespace[name] = self._final[name] = value


def _again(record: Record) -> Record:
    """The record that could not be read the last time, to be tried once more."""
    if record.tier != "placeholder" or not record.data:
        return record
    return next(layout.decode_records(record.data))
