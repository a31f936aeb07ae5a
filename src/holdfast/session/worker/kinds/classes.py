"""Classes: by the label of their definition, by name in a module, or made from their parts."""

from __future__ import annotations

import collections
import enum
import operator
import sys
from typing import TYPE_CHECKING, Any

from holdfast.session.worker.kinds import hints
from holdfast.session.worker.kinds.modules import is_made
from holdfast.session.worker.snapshots import attributes_of

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Recorder, Reduction

_OF_MEMBERS = {"_value_", "_name_", "__objclass__", "_sort_order_"}
_TRACKED = {"_make_skeleton_class": 4, "_make_skeleton_enum": 5}


def member(outer: type, path: str) -> Any:  # `Any`: a class of whatever metaclass
    """A class that stands inside another one."""
    found: Any = outer
    for name in path.split("."):
        found = attributes_of(found)[name]
    return found


def member_state(obj: Any) -> dict[str, dict[str, object]]:
    """What the members of an enum carry, beyond what `enum` gives them, by their names."""
    if not issubclass(type(obj), enum.EnumMeta):
        return {}
    found = {
        name: {key: value for key, value in vars(each).items() if key not in _OF_MEMBERS}
        for name, each in obj._member_map_.items()
    }
    return {name: state for name, state in found.items() if state}


def set_members(made: Any, state: dict[str, dict[str, object]]) -> None:
    """Give members what they carried."""
    for name, attributes in state.items():
        vars(made._member_map_[name]).update(attributes)


def set_enum(made: Any, state: tuple[Any, dict[str, dict[str, object]]]) -> None:
    """Fill an enum that was made from its parts."""
    from cloudpickle.cloudpickle import _class_setstate  # type: ignore[import-untyped]

    _class_setstate(made, state[0])
    set_members(made, state[1])


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
    if hints.is_typed_dict(obj):
        return hints.reduce_typed_dict(obj)
    kind = type(obj).__name__ if type(obj).__module__ == "_ctypes" else ""
    if kind == "PyCArrayType" and vars(obj).get("_type_"):
        return operator.mul, (obj._type_, obj._length_)
    if kind in ("PyCFuncPtrType", "PyCPointerType"):
        return recorder.hole(obj, "a type of C pointers is not brought back")
    if _is_named_tuple(obj):
        # Its methods have no source, and bytecode stays with its version of Python.
        defaults = tuple(obj._field_defaults.values())
        return named_tuple, (obj.__name__, obj._fields, defaults, obj.__module__)
    # cloudpickle would take a class of the same origin that still lives in the process, with
    # whatever was done to it since. Records that share a class share it by label.
    arguments = list(reduced[1])
    arguments[at] = None
    added = member_state(obj)
    if added:
        return (reduced[0], tuple(arguments), (reduced[2], added), None, None, set_enum)
    return (reduced[0], tuple(arguments), *reduced[2:])
