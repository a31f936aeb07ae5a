"""Running one cell: its value or its error, and nothing of the worker's own in either."""

from __future__ import annotations

import ast
import builtins
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from types import CodeType, CoroutineType, TracebackType

from holdfast.protocol.session_messages import ErrorMessage, ResultMessage
from holdfast.protocol.values import NotPlain, encode_plain
from holdfast.session.worker import interrupts, texts
from holdfast.session.worker.cells import CellLog, dedented
from holdfast.session.worker.definitions import Definitions
from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.originals import Originals
from holdfast.session.worker.texts import clean, message_of, text_of, type_name

_NEEDED = frozenset(dir(ast))  # what the session may have changed of what compiles its cells
_COROUTINE = 0x80  # `inspect.CO_COROUTINE`, without all that `inspect` imports
_OURS = (__file__, texts.__file__)  # no traceback begins there


class Runner:
    """Compiles and runs cells in the session's namespace."""

    def __init__(
        self,
        namespace: dict[str, object],
        cells: CellLog,
        definitions: Definitions,
        originals: Originals | None = None,
    ) -> None:
        self._namespace = namespace
        self._session = (originals or Originals()).session
        self._cells = cells
        self._definitions = definitions
        self.count = 0
        self.flags = 0  # `from __future__ import ...` holds for the cells after it, as at a prompt

    def run(
        self,
        execution_id: int,
        code: str,
        memory_limit: int | None = None,
        begin: Callable[[], None] = lambda: None,
    ) -> ResultMessage:
        """Run a cell. Whatever it raises, or `begin` before it, is in the result."""
        self.count += 1
        started = perf_counter()
        shown: dict[str, object] = {}
        error: ErrorMessage | None = None
        try:
            begin()
            with nullcontext() if memory_limit is None else _limited(memory_limit):
                value = self._evaluate(self.count, dedented(code))
            shown = show(value)
        except BaseException as raised:  # noqa: BLE001  # SystemExit and interrupts end only the cell
            error = describe(raised, self._cells)
        return ResultMessage(
            execution_id=execution_id,
            execution_count=self.count,
            duration=perf_counter() - started,
            error=error,
            **shown,  # type: ignore[arg-type]  # the three fields that `show` gives
        )

    def _evaluate(self, number: int, text: str) -> object:
        patches = self._definitions.patches
        if patches.may_touch(_NEEDED):
            with patches.aside():
                codes = self._compiled(number, text)
        else:  # as nearly always
            codes = self._compiled(number, text)
        if any(code.co_flags & _COROUTINE for code in codes):
            return self._await(codes)
        result: object = None
        try:
            with self._session:
                for code in codes:
                    result = _run(code, self._namespace)
        finally:
            mend()
        return result

    def _compiled(self, number: int, text: str) -> list[CodeType]:
        """A cell as code: its statements, and its value if it ends with an expression."""
        cell = self._cells.add(number, text, self.flags)
        flags = self.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(text, cell.filename, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        assert isinstance(tree, ast.Module)
        # Compiled as it is, so that errors and `__future__` flags are those of the user's text.
        plain = compile(text, cell.filename, "exec", flags, dont_inherit=True)
        future = plain.co_flags & FUTURE
        if future | self.flags != self.flags:
            self.flags |= future
            flags |= future
            self._cells.add(number, text, self.flags)
        last = tree.body[-1] if tree.body else None
        self._definitions.instrument(tree, number)
        if isinstance(last, ast.Expr):
            tree.body.pop()
        codes = [compile(tree, cell.filename, "exec", flags, dont_inherit=True)]
        if isinstance(last, ast.Expr):
            value = ast.Expression(last.value)
            codes.append(compile(value, cell.filename, "eval", flags, dont_inherit=True))
        return codes

    def _await(self, codes: list[CodeType]) -> object:
        import asyncio  # only cells that await pay for it

        async def cell() -> object:
            result: object = None
            for code in codes:
                result = _run(code, self._namespace)
                if code.co_flags & _COROUTINE:
                    assert isinstance(result, CoroutineType)
                    result = await result
            return result

        try:
            with self._session:
                return asyncio.run(cell())
        finally:
            mend()


def _limited(most: int) -> AbstractContextManager[None]:
    from holdfast.session.worker.memory.limited import Limited  # most sessions have no limit

    return Limited(most)


def _future_flags() -> int:
    import __future__

    features = (getattr(__future__, name) for name in __future__.all_feature_names)
    flags = 0
    for feature in features:
        flags |= feature.compiler_flag
    return flags


FUTURE = _future_flags()  # of all features that a cell may import


def show(value: object) -> dict[str, object]:
    """A result's fields for a value: plain data, or its repr and type."""
    name = type_name(value)
    try:
        return {"value": encode_plain(value), "type_name": name}
    except NotPlain:
        pass  # and done with: it is no context of what a repr raises
    return {"text": text_of(value), "type_name": name}


def describe(error: BaseException, cells: CellLog) -> ErrorMessage:
    """An exception for the host, its traceback without the worker's own frames."""
    frames = error.__traceback__
    while frames is not None and cells.number_of(frames.tb_frame.f_code.co_filename) is None:
        frames = frames.tb_next
    if frames is None and not isinstance(error, SyntaxError):
        frames = error.__traceback__  # an interrupt of the event loop, for one
        while frames is not None and frames.tb_frame.f_code.co_filename in _OURS:
            frames = frames.tb_next
    return ErrorMessage(
        error_type=type_name(error),
        message=message_of(error),
        traceback=clean(_format(error, frames)),
    )


def _format(error: BaseException, frames: TracebackType | None) -> str:
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith("<cell "):
        frames = None
    try:
        shown = traceback.TracebackException(type(error), error, frames, compact=True)
        if shown.stack and shown.stack[-1].filename == interrupts.__file__:
            shown.stack.pop()  # where the signal was taken is the worker's own business
        lines = list(shown.format())
    except Interrupted:
        raise
    except RecursionError:
        lines = traceback.format_exception_only(type(error), error)
    except BaseException as raised:  # noqa: BLE001  # an exception's class is user code as well
        return f"{type_name(error)}: its traceback cannot be shown ({type_name(raised)})\n"
    return "".join(lines)


_run = eval  # bound here: it is called while builtins are the session's
# What the worker itself lives on. Changes stay the user's; what is gone comes back.
_BUILTINS = vars(builtins)
_KEPT = dict(_BUILTINS)


def mend() -> None:
    """Put builtins back that a cell deleted. Uses none itself."""
    for name in _KEPT:
        if name not in _BUILTINS:
            _BUILTINS[name] = _KEPT[name]


def flush() -> None:
    """Python's own buffers; `-u` leaves them empty unless user code replaced the streams."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except BaseException:  # noqa: BLE001, S112  # the user's own stream: nothing of ours is in it
            continue
