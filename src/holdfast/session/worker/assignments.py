"""What cells may change in modules and classes, as far as their source tells. Pure."""

from __future__ import annotations

import ast

import msgspec

Path = tuple[str, ...]  # `a.b.c` as its names
# Functions that leave something in the process which nobody can read again, by their last name.
# Where a name is common, the module decides.
LEAVING = {
    "atexit": {"register"}, "codecs": {"register", "register_error"},
    "copyreg": {"pickle", "constructor"}, "csv": {"register_dialect", "field_size_limit"},
    "faulthandler": {"enable", "register", "dump_traceback_later"}, "gc": {"freeze", "set_debug"},
    "mimetypes": {"add_type"}, "os": {"nice", "sched_setaffinity", "register_at_fork"},
    "logging": {"setLoggerClass", "setLogRecordFactory"}, "pyarrow": {"register_extension_type"},
    "resource": {"setrlimit"}, "signal": {"alarm", "setitimer"},
    "sqlite3": {"register_adapter", "register_converter"},
    "sys": {"settrace", "setprofile", "addaudithook"}, "threading": {"settrace", "setprofile"},
    "tracemalloc": {"start"},
}  # fmt: skip
_LEAVING = {name for names in LEAVING.values() for name in names}
_FILLING = {"update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__"}
_INSIDE = {*_FILLING, "append", "extend", "insert", "add", "remove", "discard", "register"}


class Assignments(msgspec.Struct):
    """What the cells of a session assign, together."""

    names: set[str] = msgspec.field(default_factory=set)
    owners: set[Path] = msgspec.field(default_factory=set)  # `a.b` of each `a.b.c = ...`
    modules: set[str] = msgspec.field(
        default_factory=set
    )  # imported anywhere, also inside functions
    leaving: set[Path] = msgspec.field(default_factory=set)  # calls of what leaves something
    inside: set[Path] = msgspec.field(
        default_factory=set
    )  # `a.b` of each `a.b[...] = ...`, `a.b.add()`
    registering: set[Path] = msgspec.field(default_factory=set)  # `a.b` of each `a.b.register(...)`
    handed: set[Path] = msgspec.field(default_factory=set)  # what functions are called with
    computed: bool = False  # whether a name was computed, so that any may have changed
    anywhere: bool = False  # whether also the module was, as in `mock.patch(name)`

    def read(self, tree: ast.AST) -> None:
        """Add what a tree says."""
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(ctx=ast.Store() | ast.Del()):
                    self._assigned(node)
                case ast.Subscript(value=within, slice=key, ctx=ast.Store() | ast.Del()):
                    owner = _of_names(within)
                    if owner is not None:  # `vars(module)["name"] = ...`
                        self.owners.add(dotted(owner))
                        self._named(key)
                    self._into(dotted(within))
                case ast.Call():
                    self._called(node)
                case ast.Import():
                    self.modules.update(alias.name for alias in node.names)
                case ast.ImportFrom(module=str(module), level=0):
                    self.modules.add(module)

    def _assigned(self, node: ast.Attribute) -> None:
        owner = dotted(node.value)
        if owner == ("self",):
            return  # an instance, hardly ever a module or a class
        self.names.add(node.attr)
        self.owners.add(owner)

    def _called(self, node: ast.Call) -> None:
        path = dotted(node.func)
        self.handed.update(filter(None, map(dotted, node.args)))
        if path and path[-1] in _LEAVING:
            self.leaving.add(path)
        if path[1:] and path[-1] == "register":
            self.registering.add(path[:-1])
        if path and path[-1] in _INSIDE:
            self._into(path[:-1])
        match node:
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[owner, name, *_]):
                if dotted(owner) != ("self",):
                    self.owners.add(dotted(owner))
                    self._named(name)
            case ast.Call(func=ast.Attribute(attr="setattr" | "object"), args=[owner, name, *_]):
                self.owners.add(dotted(owner))  # `monkeypatch.setattr`, `mock.patch.object`
                self._named(name)
            case ast.Call(
                func=ast.Name(id="patch") | ast.Attribute(attr="patch" | "setattr"),
                args=[ast.Constant(value=str(target)), *_],
            ):
                within, _, last = target.rpartition(".")  # `mock.patch("json.loads")`
                if within:
                    self.names.add(last)
                    self.modules.add(within)
            case ast.Call(func=ast.Name(id="patch") | ast.Attribute(attr="patch"), args=[_, *_]):
                self.anywhere = True
            case ast.Call(func=ast.Attribute(value=within, attr=way)) if way in _FILLING:
                of = _of_names(within)
                if of is not None:  # `vars(module).update(...)`
                    self.owners.add(dotted(of))
                    self.computed = True
            case ast.Call(
                func=ast.Name(id="__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                self.modules.add(module)
            case ast.Call(func=ast.Name(id="exec"), args=[ast.Constant(value=str(text)), *_]):
                try:
                    self.read(ast.parse(text))
                except (SyntaxError, ValueError, RecursionError, MemoryError):
                    return  # it will be an error of the cell

    def _into(self, path: Path) -> None:
        if path[1:] and path[0] != "self":
            self.inside.add(path)

    def _named(self, name: ast.expr) -> None:
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            self.names.add(name.value)
        elif not isinstance(name, ast.Constant):
            self.computed = True


def dotted(node: ast.expr) -> Path:
    """`a.b.c` as its names; nothing for what is no such thing."""
    match node:
        case ast.Name():
            return (node.id,)
        case ast.Attribute():
            within = dotted(node.value)
            return (*within, node.attr) if within else ()
    return ()


def _of_names(node: ast.expr) -> ast.expr | None:
    """`x` of `vars(x)` and of `x.__dict__`."""
    match node:
        case ast.Call(func=ast.Name(id="vars"), args=[owner]):
            return owner
        case ast.Attribute(value=owner, attr="__dict__"):
            return owner
    return None
