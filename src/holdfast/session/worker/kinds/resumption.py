"""Generators under way: made again from their source, at the `yield` where they wait.

CPython cannot copy a frame, but everything in that of a waiting generator can be read: its
variables, and on its stack the iterator of every `for` and the `__exit__` of every `with` around
the `yield`, outermost first. The generator's function is compiled once more so that it begins with
these variables, goes straight to that `yield`, and takes the loops up with these iterators:

    def squares(rows):                  def squares(rows, n, row, _holdfast_0):
        n = 0                               _holdfast_first_0 = True
        for row in rows:                    for _holdfast_item in chain([None], _holdfast_0):
            n += 1                              if _holdfast_first_0:
            yield row * n                           _holdfast_first_0 = False
                                                    yield
                                                else:
                                                    row = _holdfast_item
                                                    n += 1
                                                    yield row * n

The first step, which does nothing else, is made at once. Statements keep the lines and columns of
the source, so the next capture finds the same `yield` in the same source.

A `yield` inside of an `except`, a `finally`, a `match`, or in the middle of an expression has more
on the stack than that: such a generator is not brought back.
"""

from __future__ import annotations

import gc
import itertools
import linecache
from types import CellType, CodeType, FrameType, FunctionType, GeneratorType
from typing import TYPE_CHECKING, Any

from holdfast.session.worker.kinds import modules
from holdfast.session.worker.kinds.functions import Names, Scope
from holdfast.session.worker.kinds.generators import cells_of

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Recorder, Reduction

# `Any` below: what a generator yields, its variables, and nodes of source.

_OURS = "_holdfast_"


class NotResumable(Exception):
    """Why a generator cannot be made again."""


class Entered:
    """A context that was entered before, for a `with` that is taken up."""

    def __init__(self, leave: Any) -> None:
        self._leave = leave

    def __enter__(self) -> None:
        """Nothing: the session did that."""

    def __exit__(self, *error: Any) -> Any:
        return self._leave(*error)


def resumed(
    source: str,
    first: int,
    file: str,
    names: tuple[str, str],
    place: tuple[int, int, int, int],
    scope: dict[str, Any],
    values: dict[str, Any],
    cells: dict[str, CellType],
    waiting: tuple[Any, ...],
) -> Any:
    """A generator that waits at a `yield` of this source.

    `first` is the source's line in its file, `place` the lines and columns of the `yield`, and
    `waiting` what was on the stack. Raises NotResumable, SyntaxError.
    """
    name, qualname = names
    if not linecache.getline(file, first):  # a later capture, and a traceback, look for it there
        lines = ["\n"] * (first - 1) + source.splitlines(True)
        linecache.cache[file] = (len(source), None, lines, file)
    code = _compiled(source, first, file, name, qualname, place, tuple(values), tuple(cells))
    closure = tuple(cells[each] for each in code.co_freevars)
    function = FunctionType(code, scope, name, None, closure)
    function.__qualname__ = qualname
    made = function(*values.values(), *waiting, _again, _after, Entered)
    next(made)
    return made


def loop(function: FunctionType, iterator: Any, name: str) -> Any:
    """A generator expression over what is left of its iterator."""
    made = function(iterator)
    made.__name__ = name
    return made


def reduce_waiting(recorder: Recorder, obj: GeneratorType[Any, Any, Any]) -> Reduction:
    """A generator under way. Raises NotResumable."""
    frame, code = obj.gi_frame, obj.gi_code
    if obj.gi_running or frame is None:
        raise NotResumable("it runs at this moment")
    scope = scope_of(recorder, frame)
    closure = tuple(closure_of(obj, code).values())
    recorder.enclosed(FunctionType(code, frame.f_globals, code.co_name, None, closure or None))
    if code.co_name == "<genexpr>":
        return _reduce_loop(obj, frame)
    source, first = _source(code, frame.f_globals)
    if recorder.lost(source):
        raise NotResumable("its source has a secret in it")
    place = _place(frame)
    try:
        steps = _Path(source, first, place).waiting()
    except SyntaxError as error:
        raise NotResumable(f"its source cannot be read: {error.msg}") from None
    cells, waiting = _stack(obj, steps)
    own = (*code.co_varnames, *code.co_cellvars)
    known = {each: frame.f_locals[each] for each in own if each in frame.f_locals}
    values = {each: value for each, value in known.items() if not each.startswith(_OURS)}
    shared = {id(cell) for value in values.values() for cell in _closure(value)}
    if code.co_cellvars and not shared.isdisjoint(map(id, cells_of(obj))):
        raise NotResumable("a function that it made shares its variables")
    names = (obj.__name__, obj.__qualname__)
    return resumed, (source, first, code.co_filename, names, place, scope, values, cells, waiting)


def scope_of(recorder: Recorder, frame: FrameType) -> Any:
    """A frame's globals, by the name of their module."""
    if frame.f_globals is recorder.namespace:
        return Scope("__main__")
    owner = modules.owner_of(frame.f_globals)
    if owner is None:
        return frame.f_globals
    name = modules.import_name(owner)
    return Names(owner) if name is None else Scope(name)


def closure_of(obj: Any, code: CodeType) -> dict[str, CellType]:
    """The variables of functions around a generator's, by name."""
    found = cells_of(obj)
    return dict(zip(code.co_freevars, found[len(found) - len(code.co_freevars) :], strict=True))


def _closure(value: Any) -> tuple[CellType, ...]:
    return (value.__closure__ or ()) if type(value) is FunctionType else ()


def _reduce_loop(obj: GeneratorType[Any, Any, Any], frame: FrameType) -> Reduction:
    """With a single `for` there is nothing to it but the iterator, which stays a variable."""
    import dis

    code = obj.gi_code
    loops = [each for each in dis.get_instructions(code) if each.opname == "FOR_ITER"]
    if len(loops) != 1 or code.co_cellvars:
        raise NotResumable("it has more than one loop")
    cells = closure_of(obj, code)
    closure = tuple(cells[each] for each in code.co_freevars)
    function = FunctionType(code, frame.f_globals, code.co_name, None, closure)
    function.__qualname__ = obj.__qualname__
    return loop, (function, frame.f_locals[".0"], obj.__name__)


def _source(code: CodeType, scope: dict[str, Any]) -> tuple[str, int]:
    """The text of a generator's function, and its first line."""
    import inspect

    file = code.co_filename
    if file.startswith("<frozen "):  # modules that Python begins with, and their files
        file = str(scope.get("__file__"))
    lines = linecache.getlines(file, scope)[code.co_firstlineno - 1 :]
    if not lines:
        raise NotResumable("its source is not known")
    try:
        return "".join(inspect.getblock(lines)), code.co_firstlineno
    except (SyntaxError, IndentationError, OSError) as error:
        raise NotResumable(f"its source cannot be read: {error}") from None


def _place(frame: FrameType) -> tuple[int, int, int, int]:
    """Where the `yield` stands at which a frame waits."""
    positions = list(frame.f_code.co_positions())
    found = positions[frame.f_lasti // 2]
    line, end, column, last = found
    if line is None or end is None or column is None or last is None:
        raise NotResumable("where it waits is not known")
    return line, end, column, last


def _stack(obj: Any, steps: list[str]) -> tuple[dict[str, CellType], tuple[Any, ...]]:
    """The cells that a generator was given, and what its loops and contexts have on the stack."""
    found = gc.get_referents(obj)
    if found[-1] is None:  # the error that it handles: none
        found = found[:-1]
    waiting = found[len(found) - len(steps) :] if steps else []
    for step, each in zip(steps, waiting, strict=True):
        fits = callable(each) if step == "with" else hasattr(type(each), "__next__")
        if not fits:
            raise NotResumable("its loops cannot be read")
    return closure_of(obj, obj.gi_code), tuple(waiting)


class _Path:
    """The way from a function's first statement to one of its `yield`s."""

    def __init__(self, source: str, first: int, place: tuple[int, int, int, int]) -> None:
        import ast

        self.ast = ast
        indented = source[:1] in (" ", "\t")
        tree: Any = ast.parse(f"if 1:\n{source}" if indented else source)
        self.function: Any = tree.body[0].body[0] if indented else tree.body[0]
        if not isinstance(self.function, ast.FunctionDef):
            raise NotResumable("its source is not that of a function")
        ast.increment_lineno(self.function, first - 1 - indented)
        self._place = place
        self._target = self._found()
        self._steps: list[str] = []
        self._loops = 0

    def waiting(self) -> list[str]:
        """What is on the stack: `for`, `with` and `from`, outermost first."""
        self.body()
        return self._steps

    def body(self) -> list[Any]:
        """The function's statements from the `yield` on."""
        return [*self._declared(self.function), *self._rest(self.function.body)]

    def _declared(self, node: Any) -> list[Any]:
        """Which of its names are those of a function around it, or global."""
        found: list[Any] = []
        for each in self.ast.iter_child_nodes(node):
            if isinstance(each, self.ast.Global | self.ast.Nonlocal):
                found.append(each)
            elif isinstance(each, self.ast.stmt | self.ast.excepthandler) and not isinstance(
                each, self.ast.FunctionDef | self.ast.AsyncFunctionDef | self.ast.ClassDef
            ):
                found += self._declared(each)
        return found

    def _found(self) -> Any:
        kinds = (self.ast.Yield, self.ast.YieldFrom)
        for node in self.ast.walk(self.function):
            if isinstance(node, kinds):
                where = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
                if where == self._place:
                    return node
        raise NotResumable("its source has changed")

    def _holds(self, node: Any) -> bool:
        return any(each is self._target for each in self.ast.walk(node))

    def _rest(self, statements: list[Any]) -> list[Any]:
        for index, statement in enumerate(statements):
            if self._holds(statement):
                return [*self._resumed(statement), *statements[index + 1 :]]
        raise NotResumable("it waits in the middle of an expression")

    def _resumed(self, node: Any) -> list[Any]:
        ast = self.ast
        if isinstance(node, ast.Expr | ast.Assign) and node.value is self._target:
            return [self._waits(node)]
        if isinstance(node, ast.For):
            return self._for(node)
        if isinstance(node, ast.While):
            return self._while(node)
        if isinstance(node, ast.If):
            branch = node.body if any(map(self._holds, node.body)) else node.orelse
            return self._rest(branch)
        if isinstance(node, ast.With):
            return self._with(node)
        if isinstance(node, ast.Try) and any(map(self._holds, node.body)):
            return [self._like(node, ast.Try(self._rest(node.body), node.handlers, node.orelse,
                                             node.finalbody))]  # fmt: skip
        if isinstance(node, ast.Try) and any(map(self._holds, node.orelse)):
            rest = self._rest(node.orelse)
            if not node.finalbody:
                return rest
            return [self._like(node, ast.Try(rest, [], [], node.finalbody))]
        raise NotResumable(f"it waits inside of {_NAMES.get(type(node).__name__, 'a statement')}")

    def _waits(self, node: Any) -> Any:
        """The statement that it waits in, without what it has yielded already."""
        ast = self.ast
        if isinstance(self._target, ast.YieldFrom):
            self._steps.append("from")
            rest = self._name(f"{_OURS}{len(self._steps) - 1}")
            # The first step must take nothing from it.
            waits = ast.YieldFrom(self._call("_holdfast_after", rest))
        else:
            waits = ast.Yield(None)
        waits = self._like(self._target, waits)
        if isinstance(node, ast.Expr):
            return self._like(node, ast.Expr(waits))
        return self._like(node, ast.Assign(node.targets, waits))

    def _for(self, node: Any) -> list[Any]:
        ast = self.ast
        if not any(map(self._holds, node.body)):
            return self._rest(node.orelse)
        self._steps.append("for")
        rest = self._name(f"{_OURS}{len(self._steps) - 1}")
        item, first = f"{_OURS}item", self._first()
        body = self._rest(node.body)
        take = self._like(node, ast.Assign([node.target], self._name(item)))
        branch = self._branch(node, first, body, [take, *node.body])
        again = self._call("_holdfast_again", rest)
        made = ast.For(self._name(item, True), again, [branch], node.orelse)
        return [self._set(node, first, True), self._like(node, made)]

    def _while(self, node: Any) -> list[Any]:
        ast = self.ast
        if not any(map(self._holds, node.body)):
            return self._rest(node.orelse)
        first = self._first()
        branch = self._branch(node, first, self._rest(node.body), node.body)
        test = ast.BoolOp(ast.Or(), [self._name(first), node.test])
        made = self._like(node, ast.While(test, [branch], node.orelse))
        return [self._set(node, first, True), made]

    def _with(self, node: Any) -> list[Any]:
        ast = self.ast
        if not any(map(self._holds, node.body)):
            raise NotResumable("it waits in the middle of an expression")
        items = []
        for _ in node.items:
            self._steps.append("with")
            leave = self._name(f"{_OURS}{len(self._steps) - 1}")
            items.append(ast.withitem(self._call("_holdfast_entered", leave), None))
        return [self._like(node, ast.With(items, self._rest(node.body)))]

    def _first(self) -> str:
        self._loops += 1
        return f"{_OURS}first_{self._loops - 1}"

    def _branch(self, node: Any, first: str, then: list[Any], otherwise: list[Any]) -> Any:
        unset = self._set(node, first, False)
        return self._like(node, self.ast.If(self._name(first), [unset, *then], otherwise))

    def _set(self, node: Any, name: str, value: bool) -> Any:
        target = self._name(name, True)
        return self._like(node, self.ast.Assign([target], self.ast.Constant(value)))

    def _call(self, name: str, argument: Any) -> Any:
        return self.ast.Call(self._name(name), [argument], [])

    def _name(self, name: str, store: bool = False) -> Any:
        return self.ast.Name(name, self.ast.Store() if store else self.ast.Load())

    def _like(self, node: Any, made: Any) -> Any:
        return self.ast.copy_location(made, node)


_NAMES = {
    "Try": "an `except` or a `finally`",
    "TryStar": "an `except*`",
    "Match": "a `match`",
    "Return": "a `return`",
    "AsyncFor": "an `async for`",
}
_TOOLS = ("_holdfast_again", "_holdfast_after", "_holdfast_entered")


def _again(iterator: Any) -> Any:
    return itertools.chain((None,), iterator)


def _after(iterator: Any) -> Any:
    """Waits once, then does what the iterator does: values and errors are sent on."""
    sent = yield
    if sent is None:
        return (yield from iterator)
    # What is sent to a generator that waits in `yield from` goes to the inner one.
    value = iterator.send(sent)
    while True:
        sent = yield value
        try:
            value = iterator.send(sent) if sent is not None else next(iterator)
        except StopIteration as ended:
            return ended.value


def _compiled(
    source: str,
    first: int,
    file: str,
    name: str,
    qualname: str,
    place: tuple[int, int, int, int],
    values: tuple[str, ...],
    free: tuple[str, ...],
) -> CodeType:
    """The code of the function that goes straight to the `yield`."""
    import ast

    path = _Path(source, first, place)
    steps = path.waiting()
    path = _Path(source, first, place)
    body = path.body()
    function = path.function
    around = qualname.removesuffix(name).rstrip(".").rpartition(".")[2]
    if around and around != "<locals>":
        _mangle(ast, body, around.lstrip("_"))
    given = [*values, *(f"{_OURS}{index}" for index in range(len(steps))), *_TOOLS]
    # Not by its own name: a function that calls itself, or another one of that name, means theirs.
    made = ast.FunctionDef(f"{_OURS}inner", _arguments(ast, given), body, [], None)
    ast.copy_location(made, function)
    wrapper = ast.FunctionDef(f"{_OURS}outer", _arguments(ast, list(free)), [made], [], None)
    for each in (made, wrapper):
        if "type_params" in ast.FunctionDef._fields:  # Python 3.12
            setattr(each, "type_params", [])  # noqa: B010  # older versions have no such field
    tree = ast.Module([ast.copy_location(wrapper, function)], [])
    ast.fix_missing_locations(tree)
    top = compile(tree, file, "exec", dont_inherit=True)
    (code,) = (each for each in top.co_consts if isinstance(each, CodeType))
    for each in code.co_consts:
        if isinstance(each, CodeType) and each.co_name == made.name:
            named = {"co_name": function.name, "co_qualname": qualname}
            return each.replace(co_firstlineno=first, **named)
    raise NotResumable("its source is not that of a function")


def _mangle(ast: Any, body: list[Any], around: str) -> None:
    """Private names, as the class around a method makes them."""
    for node in ast.walk(ast.Module(body, [])):
        for field in ("id", "attr"):
            name = getattr(node, field, None)
            if type(name) is str and name.startswith("__") and not name.endswith("__"):
                setattr(node, field, f"_{around}{name}")


def _arguments(ast: Any, names: list[str]) -> Any:
    given = [ast.arg(name) for name in names]
    return ast.arguments([], given, None, [], [], None, [])
