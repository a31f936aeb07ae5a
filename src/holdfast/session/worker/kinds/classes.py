"""Classes: by the label of their definition, by name in a module, or made from their parts."""

from __future__ import annotations

import collections
import sys
from typing import Any

from holdfast.session.worker.definitions import attributes_of
from holdfast.session.worker.kinds.contract import Recorder, Reduction
from holdfast.session.worker.kinds.modules import is_made

_TRACKED = {"_make_skeleton_class": 4, "_make_skeleton_enum": 5}


def member(outer: type, path: str) -> Any:  # `Any`: a class of whatever metaclass
    """A class that stands inside another one."""
    found: Any = outer
    for name in path.split("."):
        found = attributes_of(found)[name]
    return found


def named_tuple(name: str, fields: tuple[str, ...], defaults: tuple[Any, ...], module: str) -> Any:
    """What `collections.namedtuple` makes."""
    return collections.namedtuple(name, fields, defaults=defaults, module=module)


def _is_named_tuple(obj: Any) -> bool:
    """Whether the factory made this class, and nobody has added to it since."""
    own = attributes_of(obj)
    if obj.__bases__ != (tuple,) or not {"_fields", "_make", "_field_defaults"} <= own.keys():
        return False
    plain = collections.namedtuple("plain", own["_fields"])  # type: ignore[misc, arg-type]
    return own.keys() - {"__slotnames__"} <= attributes_of(plain).keys()  # made by `copyreg`


def reduce_class(recorder: Recorder, obj: Any) -> Reduction:
    """A class of the session is never copied where it can be named."""
    if "_holdfast_named" in attributes_of(obj):
        return recorder.missing(obj)
    reference = recorder.reference(obj)
    if reference is not None:
        return reference
    reduced = recorder.by_value(obj)
    module = sys.modules.get(obj.__module__) if reduced is NotImplemented else None
    if module is not None and is_made(module):
        import cloudpickle  # type: ignore[import-untyped]  # who restores a class has no use for it

        cloudpickle.register_pickle_by_value(module)
        try:
            reduced = recorder.by_value(obj)
        finally:
            cloudpickle.unregister_pickle_by_value(module)
    found = recorder.outer(obj) if isinstance(reduced, tuple) else None
    if found is not None:
        recorder.local(obj)
        return member, found
    at = _TRACKED.get(reduced[0].__name__) if isinstance(reduced, tuple) else None
    if at is None:
        recorder.local(obj)
        return reduced
    if _is_named_tuple(obj):
        # Its methods have no source, and bytecode stays with its version of Python.
        defaults = tuple(obj._field_defaults.values())
        return named_tuple, (obj.__name__, obj._fields, defaults, obj.__module__)
    # cloudpickle would take a class of the same origin that still lives in the process, with
    # whatever was done to it since. Records that share a class share it by label.
    arguments = list(reduced[1])
    arguments[at] = None
    return (reduced[0], tuple(arguments), *reduced[2:])
