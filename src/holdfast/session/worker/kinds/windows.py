"""Windows on a dict: its keys, values and items, and read-only proxies. They show what the dict
holds, so they come back over the dict itself, not over a copy."""

from __future__ import annotations

import gc
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction
from holdfast.session.worker.kinds.functions import Scope

# `Any` below: dicts of everything.


def window(owner: Any, kind: str) -> Any:
    """The keys, the values or the items of a dict."""
    return getattr(owner, kind)()


def proxy(owner: Any) -> Any:
    """What shows a mapping and changes nothing in it."""
    return MappingProxyType(owner)


def attributes(owner: type) -> Any:
    """The attributes of a class, as they are from now on."""
    return type.__dict__["__dict__"].__get__(owner)


def _window(recorder: Recorder, obj: Any) -> Reduction:
    return window, (_owner(recorder, obj), type(obj).__name__.rpartition("_")[2])


def _proxy(recorder: Recorder, obj: Any) -> Reduction:
    owner = _owner(recorder, obj)
    if type(owner) is dict and "__module__" in owner:  # perhaps `vars(SomeClass)`
        for made in gc.get_referrers(owner):
            if issubclass(type(made), type) and gc.get_referents(attributes(made))[0] is owner:
                return attributes, (made,)
    return proxy, (owner,)


def _views(made: dict[Any, Any]) -> list[type]:
    return [type(made.keys()), type(made.values()), type(made.items())]


def _owner(recorder: Recorder, obj: Any) -> Any:
    (owner,) = gc.get_referents(obj)
    return Scope("__main__") if owner is recorder.namespace else owner


EXACT: dict[type, Reduce] = {
    **dict.fromkeys([*_views({}), *_views(OrderedDict())], _window),
    MappingProxyType: _proxy,
}
