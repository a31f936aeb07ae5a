"""Functions with `functools.lru_cache`: the function as it was, and what its cache holds.

A cache cannot be written to. So one that holds something is made around a stand-in that hands out
what is known while the cache is filled, and is the function from then on. The counts of hits and
misses begin anew.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holdfast.session.worker import rebuild
from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction
from holdfast.session.worker.placeholder import Placeholder

_WRAPPED = {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "cache_parameters"}
Entry = tuple[tuple[object, ...], dict[str, object], object]  # arguments, options, result


class _Known:
    """Stands for the function while the cache is filled."""

    __slots__ = ("call",)

    # `Any`: whatever the function takes and gives.
    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.call(*args, **options)


# `Any` below: the wrapper's type has no public name.
def filled(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    """A function with a cache that `set_filled` can fill."""
    made = functools.lru_cache(maxsize, typed)(_Known(function))
    return functools.update_wrapper(made, function)


def set_filled(made: Any, state: tuple[list[Entry], dict[str, object]]) -> None:
    """Fill a cache, the oldest entry first.

    A result that could not be saved, or arguments that cannot be hashed, cost their entry: the
    function is called once more.
    """
    entries, own = state
    vars(made).update(own)
    known = next(each for each in gc.get_referents(made) if type(each) is _Known)
    function = known.call
    try:
        for args, options, result in entries:
            if not isinstance(result, Placeholder):
                known.call = lambda *_, result=result, **__: result
                with suppress(Exception):  # `__hash__` is user code, too
                    made(*args, **options)
    finally:
        known.call = function


def _cache(recorder: Recorder, obj: Any) -> Reduction:
    wrapped: Callable[..., object] = obj.__wrapped__
    if getattr(wrapped, "__module__", "__main__") != "__main__":
        named = recorder.plain(obj)  # a library's own is found by its name
        if isinstance(named, str):
            return named
    name = getattr(wrapped, "__name__", "a function")
    parameters = obj.cache_parameters()
    arguments = (wrapped, parameters["maxsize"], parameters["typed"])
    # `cache_parameters` and what `functools.wraps` copies are made anew.
    own = {k: v for k, v in vars(obj).items() if k not in _WRAPPED}
    entries = _entries(obj, parameters["typed"])
    if entries:
        code = getattr(wrapped, "__code__", None)
        names = code.co_varnames[: code.co_argcount] if code is not None else ()
        entries = [
            (_without(recorder, names, args), options, result) for args, options, result in entries
        ]
        recorder.note(f"the counts of {name}'s cache begin anew")
        return filled, arguments, (entries, own), None, None, set_filled
    recorder.note(f"the cache of {name} starts empty")
    return rebuild.cached, arguments, own or None


def _without(
    recorder: Recorder, names: tuple[str, ...], args: tuple[object, ...]
) -> tuple[object, ...]:
    """Arguments without secrets, by the names of their parameters."""
    named = min(len(names), len(args))
    return recorder.without(names[:named], args[:named]) + args[named:]


def _entries(obj: Any, typed: bool) -> list[Entry]:
    """What a cache holds, the oldest first; nothing when this Python keeps it in another way."""
    count = obj.cache_info().currsize
    bounded = obj.cache_parameters()["maxsize"] is not None
    # In the order of CPython's own visit: the type; of each link its key, its result and its
    # type, in the order of use; then the table, the function, and what stands before options.
    held = gc.get_referents(obj)
    links = held[1 : 1 + 3 * count] if bounded else []
    table, _, mark = (held[1 + len(links) :] + [None] * 3)[:3]
    if type(table) is not dict or len(table) != count or type(mark) is not object:
        return []
    found = list(zip(links[::3], links[1::3], strict=True)) if bounded else list(table.items())
    known = {id(key) for key in table}
    if any(id(key) not in known for key, _ in found):
        return []
    return [(*_call(key, mark, typed), result) for key, result in found]


def _call(key: Any, mark: object, typed: bool) -> tuple[tuple[object, ...], dict[str, object]]:
    """The arguments and options of the call that a key stands for."""
    if type(key) is not tuple:
        return (key,), {}
    at = next((at for at, each in enumerate(key) if each is mark), None)
    if at is None:
        return key[: len(key) // 2] if typed else key, {}
    rest = key[at + 1 :]
    # After the options come, if it is typed, the types of all arguments and options.
    count = (len(rest) - at) // 3 * 2 if typed else len(rest)
    return key[:at], dict(zip(rest[:count:2], rest[1:count:2], strict=True))


EXACT: dict[type, Reduce] = {type(functools.lru_cache(len)): _cache}
