"""Making definitions again: classes by executing their source, functions by compiling theirs."""

from __future__ import annotations

import abc
import ast
from collections.abc import Callable
from types import CodeType, FunctionType

from holdfast.session import layout
from holdfast.session.layout import Definition
from holdfast.session.worker import rebuild
from holdfast.session.worker.cells import CellLog
from holdfast.session.worker.codes import CodeIndex, Place, nested
from holdfast.session.worker.kinds.classes import member, set_members
from holdfast.session.worker.placeholder import Placeholder
from holdfast.session.worker.snapshots import functions_of

# Brings a name back that a class needs while it is executed; False when it cannot.
Ensure = Callable[[str], bool]


class Remake:
    """Makes the definitions of a checkpoint, one by one."""

    def __init__(
        self, namespace: dict[str, object], cells: CellLog, codes: CodeIndex, ensure: Ensure
    ) -> None:
        self._namespace = namespace
        self._cells = cells
        self._codes = codes
        self._ensure = ensure
        self.made: dict[str, object] = {}  # by label
        self.undecorated: set[str] = set()

    def make(self, entry: Definition) -> object:
        """The class or function. Raises whatever its source raises."""
        made = self._function(entry) if entry.kind == "function" else self._class(entry)
        self.made[entry.label] = made
        return made

    def _function(self, entry: Definition) -> FunctionType:
        block = entry.block_first, entry.block_last
        code = self._codes.find(Place(entry.cell, *block, entry.qualname, entry.line, entry.index))
        return rebuild.function(code, self._namespace, code.co_name, None)

    def _class(self, entry: Definition) -> object:
        cell = self._cells.get(entry.cell)
        if cell is None:
            raise LookupError(f"cell {entry.cell} is not kept")
        text = self._cells.lines(entry.cell, entry.first, entry.last)
        line = text.lstrip("\n")
        if line[:1] in " \t":
            # It stood inside another statement, so there is a line before it.
            text = "\n" * (entry.first - 2) + "if True:\n" + line
        tree = ast.parse(text, cell.filename)
        try:
            return self._defined(entry, tree, cell)
        except NameError:
            # Its decorator needs data in which the class itself is found. Such a decorator
            # registers the class, and what it did is in that data.
            node = tree.body[0] if isinstance(tree.body[0], ast.ClassDef) else tree.body[0].body[0]  # type: ignore[attr-defined]
            if not isinstance(node, ast.ClassDef) or not node.decorator_list:
                raise
            node.decorator_list.clear()
            self.undecorated.add(entry.label)
            return self._defined(entry, tree, cell)

    def _defined(self, entry: Definition, tree: ast.Module, cell: layout.Cell) -> object:
        code = compile(tree, cell.filename, "exec", cell.flags, dont_inherit=True)
        self._prepare(code, {entry.label})
        if entry.label in self.made:
            return self.made[entry.label]  # something that was prepared needed it, too
        before = self._namespace.get(entry.name)
        tried: set[str] = set()
        while True:
            try:
                exec(code, self._namespace)
                break
            except (NameError, RuntimeError) as error:
                name = _unknown(error)
                if not name or name in tried or not self._ensure(name):
                    raise
                tried.add(name)
        made = self._namespace[entry.name]
        if made is before:
            raise LookupError(f"executing its source did not define {entry.name}")
        return made

    def _prepare(self, code: CodeType, seen: set[str]) -> None:
        """Bring back what executing this code will look up, and what that will call."""
        codes = [code, *(inner for inner in nested(code) if not inner.co_flags & 0x2)]
        for name in {name for each in codes for name in each.co_names}:
            if name in seen:
                continue
            seen.add(name)
            self._ensure(name)
            value: object = self._namespace.get(name)
            if type(value) is FunctionType and value.__globals__ is self._namespace:
                self._prepare(value.__code__, seen)


def _unknown(error: BaseException) -> str | None:
    """The name that was not there; Python 3.11 wraps what `__set_name__` raises."""
    cause = error if isinstance(error, NameError) else error.__cause__
    return cause.name if isinstance(cause, NameError) else None


def set_class(cls: type, state: dict[str, object]) -> list[str]:
    """Apply a class's state; returns what could not be set, with the reason."""
    problems = _apply(cls, state)
    inner = state.get("inner")
    for path, changes in inner.items() if isinstance(inner, dict) else ():
        problems += _apply(member(cls, path), changes)
    return problems


def _apply(cls: type, state: dict[str, object]) -> list[str]:
    problems: list[str] = []
    bases = state.get("bases")
    changed, deleted, methods, closures = (
        state.get(key) for key in ("set", "delete", "methods", "closures")
    )
    wanted = {"__bases__": bases} if bases else {}
    wanted |= changed if isinstance(changed, dict) else {}
    for name, value in wanted.items():
        try:
            setattr(cls, name, value)
        except (AttributeError, TypeError) as error:
            problems.append(f"{name}: {error}")
    for name in deleted if isinstance(deleted, list) else ():
        try:
            delattr(cls, name)
        except AttributeError as error:
            problems.append(f"{name}: {error}")
    functions = functions_of(dict(vars(cls)))
    for name, parts in methods.items() if isinstance(methods, dict) else ():
        method = functions.get(name)
        if method is not None:
            method.__defaults__, method.__kwdefaults__, attributes = parts
            method.__dict__.update(attributes)
    for name, variables in closures.items() if isinstance(closures, dict) else ():
        if name in functions:
            _set_closure(functions[name], variables)
    members = state.get("members")
    if isinstance(members, dict):
        set_members(cls, members)
    registered = state.get("register")
    for other in registered if isinstance(registered, list) else ():
        if isinstance(cls, abc.ABCMeta) and isinstance(other, type):
            cls.register(other)
    return problems


def _set_closure(method: FunctionType, variables: dict[str, tuple[object]]) -> None:
    """Give a method the variables of the function around it; what could not be saved is as new."""
    for name, cell in zip(method.__code__.co_freevars, method.__closure__ or (), strict=True):
        value = variables.get(name)
        if value is not None and not isinstance(value[0], Placeholder):
            (cell.cell_contents,) = value
