"""Looking into the namespace while nothing runs: names that could follow, and what there is.

Nothing here calls the user's code where that can be avoided: a property is not asked, and only
plain values are shown.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import keyword
import re
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType

from holdfast.protocol.session_messages import Variable
from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.texts import clean, text_of, type_module, type_name

MOST = 500  # completions that one answer holds
_TAIL = re.compile(r"(?:[^\W\d]\w*\.)*(?:[^\W\d]\w*)?$")
# By identity: a metaclass may do anything when its classes are compared.
_PLAIN = frozenset(map(id, (bool, int, float, complex, str, bytes, type(None))))
_CONTAINERS = frozenset(map(id, (list, tuple, dict, set, frozenset, bytearray)))
_BRIEF = 60


def completions(namespace: Mapping[str, object], text: str) -> tuple[str, ...]:
    """What the name at the end of a text could be, whole: `np.ar` gives `np.array`."""
    found = _TAIL.search(text)
    tail = found[0] if found else ""
    if not tail:
        return ()
    path, dot, last = tail.rpartition(".")
    if not dot:
        names: Iterable[str] = {*namespace, *dir(builtins), *keyword.kwlist}
    else:
        owner = _resolve(namespace, path.split("."))
        if owner is _NOTHING:
            return ()
        names = _attributes(owner)
    wanted = sorted(
        name
        for name in names
        if type(name) is str and name.startswith(last) and (last or not name.startswith("_"))
    )
    return tuple(clean(f"{path}{dot}{name}") for name in wanted[:MOST])


_NOTHING = object()


def _resolve(namespace: Mapping[str, object], path: list[str]) -> object:
    first, *rest = path
    value = namespace.get(first, getattr(builtins, first, _NOTHING))
    for name in rest:
        if value is _NOTHING:
            break
        value = _static(value, name)
    return value


def _static(value: object, name: str) -> object:
    try:
        if type(value).__getattribute__ is object.__getattribute__ or _is_module(value):
            found = inspect.getattr_static(value, name, _NOTHING)
            # What computes its value when it is asked for is left alone.
            return _NOTHING if hasattr(type(found), "__get__") else found
    except Exception:  # noqa: BLE001  # an object may be anything; then there is nothing to offer
        return _NOTHING
    return _NOTHING


def _attributes(value: object) -> list[str]:
    try:
        return dir(value)
    except Exception:  # noqa: BLE001  # a broken __dir__ costs the completion, not the prompt
        return []


def variables(namespace: Mapping[str, object]) -> tuple[Variable, ...]:
    """The names that a user would call theirs, in the order in which they came."""
    return tuple(
        _variable(name, value)
        for name, value in namespace.items()
        if type(name) is str and not name.startswith("_")
    )


def _variable(name: str, value: object) -> Variable:
    shape = _shape(value)
    return Variable(
        name=clean(name), type_name=type_name(value), size_bytes=_size(value), summary=clean(shape)
    )


def measure(value: object) -> str:
    """How much of a value there is; of texts never the text, which a report would give away."""
    kind = type(value)
    if kind is str:
        return f"{len(value)} characters"  # type: ignore[arg-type]  # a text
    if kind is bytes:
        return f"{len(value)} bytes"  # type: ignore[arg-type]  # these have a length
    return _shape(value)


def _shape(value: object) -> str:
    """A plain value itself, otherwise how much of it there is."""
    kind = type(value)
    if id(kind) in _PLAIN:
        text = text_of(value)
        return text if len(text) <= _BRIEF else text[:_BRIEF] + "..."
    if id(kind) in _CONTAINERS:
        return f"{len(value)} items"  # type: ignore[arg-type]  # these all have a length
    if type_module(kind).partition(".")[0] in ("numpy", "pandas", "polars", "torch"):
        try:
            shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", "")
            if isinstance(shape, tuple):
                return f"{' x '.join(map(str, shape)) or 'scalar'} {_dtype_text(dtype)}".strip()
        except Interrupted:
            raise
        except BaseException:  # noqa: BLE001  # a class may only say that it is a library's
            return ""
    return clean(getattr(value, "__name__", "")) if _is_module(value) else ""


def _dtype_text(dtype: object) -> str:
    # Those of others may hold much: a categorical one has its categories.
    own = type_module(type(dtype)).partition(".")[0] == "numpy"
    return _numpy_text(dtype) if own else str(dtype)


_numpy_text = functools.lru_cache(100)(str)  # it takes longer than all else that is said of arrays


def _is_module(value: object) -> bool:
    return issubclass(type(value), ModuleType)  # `isinstance` would ask the value itself


def _size(value: object) -> int:
    try:
        if type_module(type(value)).partition(".")[0] == "numpy":
            return int(getattr(value, "nbytes", 0))
        if type_module(type(value)).partition(".")[0] == "pandas":
            usage = getattr(value, "memory_usage", None)
            if usage is not None:
                used = usage(deep=False)
                return int(used.sum() if hasattr(used, "sum") else used)
        return sys.getsizeof(value)
    except Exception:  # noqa: BLE001  # a broken __sizeof__ is no reason to show nothing
        return 0
