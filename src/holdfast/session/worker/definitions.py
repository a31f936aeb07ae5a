"""Definitions and imports, noticed while they run.

A cell's tree gets a call after each class, function and import that stands outside
functions and classes, also inside `if`, `for`, `try` and `with`; so what is noted is what
ran, as often as it ran, in the order in which it ran.
"""

from __future__ import annotations

import ast
import builtins
import weakref
from typing import Literal, NoReturn

import msgspec

from holdfast.session.layout import Definition
from holdfast.session.worker import library_settings
from holdfast.session.worker.cells import first_line
from holdfast.session.worker.circumstances import Circumstances
from holdfast.session.worker.originals import Originals
from holdfast.session.worker.patches import Patches
from holdfast.session.worker.snapshots import Snapshot, inner_classes

# Looked up through builtins, so that the user's namespace stays the user's.
_HOOK = "__holdfast_ran__"


class Site(msgspec.Struct, frozen=True):
    """A statement that defines or imports something."""

    kind: Literal["class", "function", "import"]
    name: str
    cell: int
    first: int
    last: int
    modules: tuple[str, ...] = ()
    statement: str = ""


class Event:
    """A definition that ran, the object it made, and what that was like at the moment."""

    __slots__ = ("label", "object", "site", "snapshots")

    def __init__(self, label: str, site: Site, made: object) -> None:
        self.label = label
        self.site = site
        self.object = weakref.ref(made)
        # Of the class, and of those inside it by their way from there.
        self.snapshots = {"": Snapshot.of(made)}
        self.snapshots |= {p: Snapshot.of(each) for p, each in inner_classes(made).items()}


class Definitions:
    """All definitions whose objects still live, and all imports, in order."""

    def __init__(self, namespace: dict[str, object], originals: Originals | None = None) -> None:
        self._namespace = namespace
        self._originals = originals or Originals()
        self._sites: list[Site] = []
        self._known: dict[Site, int] = {}
        self._events: list[Event] = []
        self._sequence = 0
        self._room = 1000
        self.imports: dict[str, str] = {}
        self.patches = Patches(self._originals)
        # None where the process belongs to whoever lent the namespace.
        self.circumstances: Circumstances | None = None
        # What a restore could not make, by label: it is carried along to be made another time.
        self.lost: dict[str, Definition] = {}

    def __reduce__(self) -> NoReturn:
        raise TypeError("this belongs to the worker, not to the session")

    def install(self) -> None:
        """Watch over the whole process: it is the session's own."""
        setattr(builtins, _HOOK, self._ran)
        self.patches.install()
        self.circumstances = Circumstances()
        library_settings.note()

    def instrument(self, tree: ast.Module, cell: int) -> ast.Module:
        """Add the calls to a cell's tree; docstrings and `__future__` imports stay in front."""
        library_settings.note()  # of what was loaded by the way
        self.patches.look_for(tree)
        self.patches.look_at(self._namespace)
        if any("random" in imported(node) for node in ast.walk(tree)):
            self.imports.setdefault("random", "import random")  # perhaps only inside a function
        tree.body = self._statements(tree.body, cell)
        return tree

    def living(self) -> list[Event]:
        """Definitions whose object still exists, in the order in which they ran."""
        self._events = [event for event in self._events if event.object() is not None]
        return list(self._events)

    def adopt(self, label: str, site: Site, made: object) -> None:
        """Note a definition that a restore has brought back."""
        self._events.append(Event(label, site, made))
        self._reserve(label)

    def lose(self, entry: Definition) -> None:
        """Carry along a definition that a restore could not make. Its label stays its own."""
        self.lost[entry.label] = entry
        self._reserve(entry.label)

    def _reserve(self, label: str) -> None:
        self._sequence = max(self._sequence, int(label[1:]) if label[1:].isdigit() else 0)

    def clear(self) -> None:
        """Forget everything, before a restore."""
        self._events.clear()
        self.imports.clear()
        self.lost.clear()

    def state(self) -> tuple[list[Event], dict[str, str], dict[str, Definition]]:
        """What is known now: the definitions that live, the imports, and what could not be made."""
        return self.living(), dict(self.imports), dict(self.lost)

    def reset(self, state: tuple[list[Event], dict[str, str], dict[str, Definition]]) -> None:
        """Know again what was known before a restore that failed."""
        events, imports, lost = state
        self._events, self.imports, self.lost = list(events), dict(imports), dict(lost)

    def label(self) -> str:
        """A label that no definition of this session has had."""
        self._sequence += 1
        return f"d{self._sequence}"

    def _ran(self, index: int) -> None:
        with self._originals.worker:
            self._note(index)

    def _note(self, index: int) -> None:
        site = self._sites[index]
        if site.kind == "import":
            for module in site.modules:
                self.imports.setdefault(module, site.statement)
                self.patches.imported(module)
            library_settings.note()
            self.patches.look_at(self._namespace)
            return
        made = self._namespace.get(site.name)
        try:
            self._events.append(Event(self.label(), site, made))
        except TypeError:
            return  # a decorator made something that is no definition any more: it is data
        if len(self._events) > self._room:
            self._room = 2 * len(self.living()) + 1000

    def _statements(self, body: list[ast.stmt], cell: int) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for node in body:
            found.append(node)
            match node:
                case ast.ClassDef():
                    found.append(self._call(node, "class", node.name, cell))
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    found.append(self._call(node, "function", node.name, cell))
                case ast.Import() | ast.ImportFrom():
                    modules = imported(node)
                    if modules:
                        found.append(self._call(node, "import", "", cell, modules))
                case _:
                    self._descend(node, cell)
        return found

    def _descend(self, node: ast.AST, cell: int) -> None:
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(node, field, None)
            if isinstance(inner, list) and inner:
                setattr(node, field, self._statements(inner, cell))
        for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._descend(branch, cell)

    def _call(
        self,
        node: ast.stmt,
        kind: Literal["class", "function", "import"],
        name: str,
        cell: int,
        modules: tuple[str, ...] = (),
    ) -> ast.stmt:
        statement = ast.unparse(node) if kind == "import" else ""
        last = node.end_lineno or node.lineno
        site = Site(kind, name, cell, first_line(node), last, modules, statement)
        index = self._known.setdefault(site, len(self._sites))
        if index == len(self._sites):
            self._sites.append(site)
        call = ast.Call(ast.Name(_HOOK, ast.Load()), [ast.Constant(index)], [])
        # On the statement's own line, so that no traceback shows a line that nobody wrote.
        return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), node))


def imported(node: ast.AST) -> tuple[str, ...]:
    """The modules that a statement loads, without asking whether they exist."""
    if isinstance(node, ast.Import):
        return tuple(alias.name for alias in node.names)
    if (
        not isinstance(node, ast.ImportFrom)
        or node.level
        or not node.module
        or node.module == "__future__"
    ):
        return ()
    return (node.module,)
