"""Weak references: to the object they pointed to, which lives on only if something holds it."""

from __future__ import annotations

import weakref
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction

# `Any` below: weak references to things of every type.


class _Gone:
    """Dies as soon as nobody holds it."""


def dead() -> weakref.ref[Any]:
    """A reference whose object is gone."""
    return weakref.ref(_Gone())


def proxy(target: Any | None) -> Any:
    """A proxy of an object, or of one that is gone."""
    return weakref.proxy(_Gone() if target is None else target)


def _reference(recorder: Recorder, obj: weakref.ref[Any]) -> Reduction:
    target = obj()
    if target is None:
        return dead, ()
    callback: Any = obj.__callback__
    return weakref.ref, (target,) if callback is None else (target, callback)


def _method(recorder: Recorder, obj: weakref.WeakMethod[Any]) -> Reduction:
    method = obj()
    return (dead, ()) if method is None else (weakref.WeakMethod, (method,))


def _proxy(recorder: Recorder, obj: Any) -> Reduction:
    try:
        target = obj.__reduce_ex__.__self__  # the proxy hands out the methods of its object
    except ReferenceError:
        return proxy, (None,)
    return proxy, (target,)


def _mapping(recorder: Recorder, obj: Any) -> Reduction:
    return type(obj), (), None, None, iter(list(obj.items()))


def _finalizer(recorder: Recorder, obj: object) -> Reduction:
    return recorder.hole(obj, "a finalizer belongs to the process that it was made in")


EXACT: dict[type, Reduce] = {
    weakref.ReferenceType: _reference,
    weakref.WeakMethod: _method,
    weakref.ProxyType: _proxy,
    weakref.CallableProxyType: _proxy,
    weakref.WeakValueDictionary: _mapping,
    weakref.WeakKeyDictionary: _mapping,
    weakref.finalize: _finalizer,
}
