"""What is in the namespace: imports, definitions and values, told apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType

import msgspec

from holdfast.model.secrets import USUAL, Rule
from holdfast.protocol.session_messages import ItemReport
from holdfast.session.layout import Definition, Import
from holdfast.session.worker.codes import CodeIndex, Place
from holdfast.session.worker.definitions import Definitions, Event
from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.kinds.functions import function_state
from holdfast.session.worker.kinds.modules import import_name
from holdfast.session.worker.placeholder import Placeholder
from holdfast.session.worker.reasons import reason_of
from holdfast.session.worker.secrets import defaults
from holdfast.session.worker.snapshots import Snapshot, home
from holdfast.session.worker.states import class_state
from holdfast.session.worker.texts import clean, text_of

# The interpreter's own entries of a module.
OWN = {
    "__builtins__", "__name__", "__doc__", "__package__", "__loader__", "__spec__", "__file__",
    "__cached__",
}  # fmt: skip


@dataclass(slots=True)
class Inventory:
    """A namespace, sorted by how each of its names is kept."""

    values: list[str] = field(default_factory=list)
    imports: tuple[Import, ...] = ()
    definitions: list[Definition] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)
    objects: dict[str, object] = field(default_factory=dict)  # by label
    snapshots: dict[int, dict[str, Snapshot]] = field(default_factory=dict)  # by id of a class
    states: dict[str, dict[str, object]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    skipped: list[ItemReport] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)  # labels of what could not be made again
    rule: Rule = USUAL


def take(
    namespace: dict[str, object],
    codes: CodeIndex,
    definitions: Definitions,
    names: Mapping[str, object],
    rule: Rule = USUAL,
) -> Inventory:
    """Sort the names of a namespace that are to be kept. It only looks."""
    found = Inventory(rule=rule)
    modules: dict[str, list[str]] = {}
    bound: dict[int, list[str]] = {}  # classes and functions -> their names
    for name, value in list(names.items()):
        if type(name) is not str or not _is_text(name):
            reason = "its name in the namespace is not text"
            shown = clean(text_of(name) if type(name) is not str else ascii(name))
            found.skipped.append(ItemReport(name=shown, outcome="skipped", reason=reason))
        elif name in OWN or (name == "__annotations__" and type(value) is dict and not value):
            continue
        elif (module := _module_name(value)) is not None:
            modules.setdefault(module, []).append(name)
        elif issubclass(type(value), type) or _own_function(value, namespace):
            bound.setdefault(id(value), []).append(name)
        else:
            found.values.append(name)
    found.imports = _imports(modules, definitions.imports)
    named = {id(names[name]) for name in found.values if type(names[name]) is property}
    for event in definitions.living():
        made = event.object()
        if id(made) in found.labels:
            continue
        if issubclass(type(made), type):
            assert isinstance(made, type)
            _add_class(found, event, made, bound.pop(id(made), []), named)
        elif type(made) is FunctionType and id(made) in bound:
            place = codes.locate(made.__code__)
            if place is not None:
                _add_function(found, event.label, made, place, bound.pop(id(made)))
    _add_lost(found, definitions.lost, names)
    for aliases in bound.values():
        value = names[aliases[0]]
        place = codes.locate(value.__code__) if type(value) is FunctionType else None
        if type(value) is FunctionType and place is not None and not _is_method(value, found):
            _add_function(found, f"f:{aliases[0]}", value, place, aliases)
        else:
            found.values.extend(aliases)
    return found


def _is_text(name: str) -> bool:
    """Whether it can be written down: a lone surrogate cannot."""
    return name.isascii() or clean(name) == name


def _module_name(value: object) -> str | None:
    """The name by which a module is imported again, if it can be written down."""
    name = import_name(value)
    return name if name is not None and _is_text(name) else None


def _own_function(value: object, namespace: dict[str, object]) -> bool:
    if type(value) is not FunctionType:
        return False
    return value.__globals__ is namespace and value.__closure__ is None


def _is_method(value: FunctionType, found: Inventory) -> bool:
    """Whether making a class again makes it."""
    return home(value, found.objects.values(), found.snapshots) is not None


def _imports(modules: dict[str, list[str]], ran: dict[str, str]) -> tuple[Import, ...]:
    imports = [
        Import(module=module, names=tuple(modules.pop(module, ())), statement=statement)
        for module, statement in ran.items()
    ]
    imports += [
        Import(module=module, names=tuple(names), statement=f"import {module}")
        for module, names in modules.items()
    ]
    return tuple(imports)


def _add_lost(found: Inventory, lost: dict[str, Definition], there: Mapping[str, object]) -> None:
    """Source that could not be executed the last time, as long as its names stand for it."""
    for label, entry in lost.items():
        names = tuple(n for n in entry.names if type(there.get(n)) is Placeholder)
        found.definitions.append(msgspec.structs.replace(entry, names=names))
        found.lost.add(label)
        for name in names:
            found.values.remove(name)


def _add_class(
    found: Inventory, event: Event, made: type, names: list[str], named: set[int]
) -> None:
    site = event.site
    found.labels[id(made)] = event.label
    found.objects[event.label] = made
    found.snapshots[id(made)] = event.snapshots
    found.definitions.append(
        Definition(
            label=event.label, kind="class", name=site.name, names=tuple(names),
            cell=site.cell, first=site.first, last=site.last,
        )
    )  # fmt: skip
    try:
        state = class_state(made, event, named, found.rule)
    except Interrupted:
        raise
    except BaseException as error:  # noqa: BLE001  # its attributes are user code
        note = f"only its source is kept: {reason_of(error)}"
        found.notes.setdefault(event.label, []).append(note)
        return
    if state:
        found.states[event.label] = state


def _add_function(
    found: Inventory, label: str, made: FunctionType, place: Place, names: list[str]
) -> None:
    found.labels[id(made)] = label
    found.objects[label] = made
    found.definitions.append(
        Definition(
            label=label, kind="function", name=names[0], names=tuple(names),
            cell=place.cell, first=place.first, last=place.last,
            block_first=place.first, block_last=place.last,
            qualname=place.qualname, line=place.line, index=place.nth,
        )
    )  # fmt: skip
    try:
        state = function_state(made)
    except Interrupted:
        raise
    except BaseException as error:  # noqa: BLE001  # its attributes are user code
        note = f"only its source is kept: {reason_of(error)}"
        found.notes.setdefault(label, []).append(note)
        return
    if "__defaults__" in state:
        state["__defaults__"] = defaults(found.rule, made)
    if state:
        found.states[label] = state
