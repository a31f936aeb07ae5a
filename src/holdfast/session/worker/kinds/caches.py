"""Functions with `functools.lru_cache`: the function as it was, its cache empty."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from holdfast.session.worker import rebuild
from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction

_WRAPPED = {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "cache_parameters"}


# `Any`: the wrapper's type has no public name.
def _cache(recorder: Recorder, obj: Any) -> Reduction:
    wrapped: Callable[..., object] = obj.__wrapped__
    if getattr(wrapped, "__module__", "__main__") != "__main__":
        named = recorder.plain(obj)  # a library's own is found by its name
        if isinstance(named, str):
            return named
    recorder.note(f"the cache of {getattr(wrapped, '__name__', 'a function')} starts empty")
    parameters = obj.cache_parameters()
    arguments = (wrapped, parameters["maxsize"], parameters["typed"])
    # `cache_parameters` and what `functools.wraps` copies are made anew.
    own = {k: v for k, v in vars(obj).items() if k not in _WRAPPED}
    return rebuild.cached, arguments, own or None


EXACT: dict[type, Reduce] = {type(functools.lru_cache(len)): _cache}
