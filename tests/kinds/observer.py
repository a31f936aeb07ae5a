"""Makes objects, uses them and writes down what was seen, as text that can be compared.

It runs in workers of sessions, and by itself: without any tool, for what should be seen, and with
dill or cloudpickle. It imports nothing of Holdfast, and no library that is not there already.

    python observer.py alone|dill|cloudpickle save|load PLAN SEEN FOLDER
"""

from __future__ import annotations

import ast
import datetime
import faulthandler
import hashlib
import importlib
import json
import linecache
import re
import sys
from pathlib import Path
from typing import Any

PATIENCE = 60  # seconds for one kind
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|(?<= at )[0-9a-f]{12,}")
_LONG = 4000


# -- what a value looks like ---------------------------------------------------------------


def plain(value: Any, depth: int = 0) -> Any:
    """A value as lists and texts: its type, and what is in it."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is str:
        return _scrubbed(value)
    if kind is float:
        return _number(value)
    if kind is complex:
        return ["complex", _number(value.real), _number(value.imag)]
    name = f"{kind.__module__}.{kind.__qualname__}"
    if depth > 12:
        return [name, "deeper"]
    if kind is bytes or kind is bytearray or kind is memoryview:
        return [name, hashlib.sha1(bytes(value)).hexdigest(), len(value)]
    if isinstance(value, tuple | list):
        return [name, *(plain(each, depth + 1) for each in value)]
    if isinstance(value, dict):
        return [name, *([plain(k, depth + 1), plain(v, depth + 1)] for k, v in value.items())]
    if isinstance(value, set | frozenset):
        return [name, *sorted((plain(each, depth + 1) for each in value), key=json.dumps)]
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return [name, repr(value)]
    return [name, *_of_library(value, kind, depth)]


def _of_library(value: Any, kind: type, depth: int) -> list[Any]:
    root = kind.__module__.partition(".")[0]
    shown = kind.__name__
    if root == "numpy" and hasattr(value, "dtype") and hasattr(value, "tolist"):
        flags = getattr(value, "flags", None)
        form = [bool(flags[name]) for name in ("C", "F", "W")] if shown == "ndarray" else []
        mask = [plain(value.mask.tolist())] if hasattr(value, "mask") else []
        return [str(value.dtype), plain(list(getattr(value, "shape", ()))), *form,
                plain(value.tolist(), depth + 1), *mask]  # fmt: skip
    if root == "pandas" and hasattr(value, "to_dict") and hasattr(value, "columns"):
        return [plain(list(value.columns)), [str(each) for each in value.dtypes],
                plain(value.index, depth + 1),
                [plain(value.iloc[:, n].tolist()) for n in range(value.shape[1])],
                plain(dict(value.attrs))]  # fmt: skip
    if root == "pandas" and hasattr(value, "to_dict") and hasattr(value, "index"):
        return [plain(value.name), str(value.dtype), plain(value.index, depth + 1),
                plain(value.tolist(), depth + 1)]  # fmt: skip
    if root == "pandas" and hasattr(value, "names") and hasattr(value, "tolist"):
        return [str(value.dtype), plain(list(value.names)), plain(value.tolist(), depth + 1)]
    if root == "polars" and hasattr(value, "to_dict") and hasattr(value, "schema"):
        return [repr(value.schema), plain(value.to_dict(as_series=False), depth + 1)]
    if root in ("polars", "pyarrow") and hasattr(value, "to_list"):
        return [str(getattr(value, "dtype", "")), plain(value.to_list(), depth + 1)]
    if root == "pyarrow" and hasattr(value, "to_pydict"):
        return [str(value.schema), plain(value.to_pydict(), depth + 1)]
    if root == "torch" and hasattr(value, "requires_grad") and hasattr(value, "detach"):
        grad = plain(value.grad, depth + 1) if value.is_leaf else None
        return [str(value.dtype), list(value.shape), value.requires_grad,
                plain(value.detach().to_dense().tolist(), depth + 1), grad]  # fmt: skip
    if root == "scipy" and hasattr(value, "toarray"):
        return [str(value.dtype), plain(value.toarray().tolist())]
    if root in ("jaxlib", "jax") and hasattr(value, "tolist"):
        return [str(value.dtype), plain(value.tolist(), depth + 1)]
    if root == "xarray" and hasattr(value, "to_dict"):
        return [plain(value.to_dict(), depth + 1)]
    if isinstance(value, BaseException):
        return [_scrubbed(str(value))]
    return [_scrubbed(repr(value))]


def _number(value: float) -> str:
    # Sums in another order, as threads make them, differ in the last digits.
    return f"{value:.6g}" if value != 0 else "0"


def _scrubbed(text: str) -> str:
    text = _ADDRESS.sub("0x", text.replace(str(FOLDER), "FOLDER"))
    if len(text) > _LONG:
        return f"{text[:200]}... {len(text)} {hashlib.sha1(text.encode()).hexdigest()}"
    return text


FOLDER: Path | str = "/nowhere"


# -- for the code that uses them -----------------------------------------------------------


def raises(call: Any) -> str:
    """The type of what it raises; says so where nothing is raised."""
    try:
        value = call()
    except Exception as error:  # noqa: BLE001  # it is what is looked at
        return type(error).__name__
    return f"nothing raised: {value!r}"


def shares(one: Any, other: Any) -> bool:
    """Whether two arrays have memory in common."""
    import numpy as np

    return bool(np.shares_memory(np.asarray(one), np.asarray(other)))


def observe(code: str, names: dict[str, Any]) -> list[Any]:
    """Run statements; the values of those that are expressions, and what was raised."""
    seen: list[Any] = []
    names["raises"], names["shares"] = raises, shares
    for number, statement in enumerate(ast.parse(code).body):
        try:
            if isinstance(statement, ast.Expr):
                compiled = _compiled(ast.Expression(statement.value), number, "eval")
                seen.append(plain(eval(compiled, names)))
            else:
                exec(_compiled(ast.Module([statement], []), number, "exec"), names)
        except BaseException as error:  # noqa: BLE001  # the difference is what is looked for
            kind = type(error)
            seen.append(["raised", f"{kind.__name__}: {_scrubbed(str(error))[:300]}"])
    return seen


def _compiled(tree: Any, number: int, mode: str) -> Any:
    return compile(tree, f"<use {number}>", mode, dont_inherit=True)


def run_cell(code: str, names: dict[str, Any], title: str) -> None:
    """Run code whose source can be found, as that of a notebook's cell."""
    file = f"<cell {title}>"
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    exec(compile(code, file, "exec", dont_inherit=True), names)


class Record:
    """What was seen of one kind after the other; it is whole after every one, since any may end
    the process."""

    def __init__(self, path: str) -> None:
        self._path = path

    def add(self, own: str, word: str, value: Any = None) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps([own, word, value]) + "\n")


def note(path: str, own: str, code: str, names: dict[str, Any]) -> None:
    """Use one kind, and write it down."""
    record = Record(path)
    record.add(own, "begun")
    faulthandler.dump_traceback_later(PATIENCE, exit=True, file=sys.__stderr__)
    try:
        record.add(own, "seen", observe(code, names))
    finally:
        faulthandler.cancel_dump_traceback_later()


# -- by itself -------------------------------------------------------------------------------


def main() -> None:
    global FOLDER
    tool, verb, plan, seen, folder = sys.argv[1:]
    FOLDER = folder
    names = vars(sys.modules["__main__"])
    record = Record(seen)
    with open(plan, encoding="utf-8") as file:
        given = json.load(file)
    names["folder"] = folder
    run_cell(given["setup"], names, "setup")
    if tool == "alone":
        for kind in given["kinds"]:
            try:
                run_cell(kind["make"], names, kind["own"])
            except Exception as error:  # noqa: BLE001  # the table is wrong then, and is told so
                record.add(kind["own"], "unmade", f"{type(error).__name__}: {error}")
        for kind in given["kinds"]:
            note(seen, kind["own"], kind["use"], names)
        return
    library = importlib.import_module(tool)
    for kind in given["kinds"]:
        name = kind["own"]
        place = Path(folder) / f"{name}.{tool}"
        record.add(name, "begun")
        faulthandler.dump_traceback_later(PATIENCE, exit=True, file=sys.__stderr__)
        try:
            if verb == "save":
                before = set(names)
                run_cell(kind["make"], names, name)
                made = {each: names[each] for each in names if each not in before}
                place.write_bytes(library.dumps(made, protocol=5))
                record.add(name, "saved")
            else:
                names.update(library.loads(place.read_bytes()))
                record.add(name, "seen", observe(kind["use"], names))
        except BaseException as error:  # noqa: BLE001  # the tool's failure is what is looked for
            record.add(name, "failed", f"{type(error).__name__}: {error}"[:300])
        finally:
            faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
