"""Deep structures, such as long linked lists, laid flat: first empty nodes, then what is in them.

Pickle follows references by recursion, which ends somewhere; reading a pickle does not. Here
each node of a structure is only named wherever it is met, so nothing is deep. It also helps where
an object is a member of a set that it holds itself: sets and dicts are filled last, when all that
hashes need is there.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.session.worker.placeholder import LeftOut

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Reduce

    Family = Callable[[type], Reduce | None]
    Without = Callable[[Iterable[object], Iterable[object]], tuple[object, ...]]


# `Any` below: nodes are lists, dicts and instances of the user's classes.

_INLINE = (tuple, frozenset)


class Flat(msgspec.Struct, frozen=True):
    """The nodes of a structure: what each is made from, and what is in it."""

    nodes: list[Any]
    kinds: list[type]
    states: list[Any]


def lay_flat(
    value: object, named: Mapping[int, str], family: Family, without: Without | None = None
) -> Flat:
    """Every list, dict and plain instance in a value, but for what other records have. `family`
    tells how the objects of a type are taken apart, `without` what stands for secrets in dicts."""
    found = Flat([], [], [])
    seen: set[int] = set()
    waiting: list[Any] = [value]
    while waiting:
        obj = waiting.pop()
        if id(obj) in seen or id(obj) in named:
            continue
        kind = type(obj)
        if kind in _INLINE:
            seen.add(id(obj))
            waiting += obj
            continue
        if kind is LeftOut:
            continue
        state = _state(obj, kind, family)
        if state is None:
            continue
        if kind is dict and without is not None:
            keys = [key for key, _ in state]
            state = list(zip(keys, without(keys, [item for _, item in state]), strict=True))
        seen.add(id(obj))
        found.nodes.append(obj)
        found.kinds.append(kind)
        found.states.append(state)
        waiting += _inside(state)
    return found


def fill_all(nodes: list[Any], states: list[Any]) -> None:
    """Put into empty nodes what was in them; what needs hashes comes last."""
    pairs = list(zip(nodes, states, strict=True))
    for last in (False, True):
        for node, state in pairs:
            if (type(node) is dict or type(node) is set) is last:
                _fill(node, state)


def _fill(node: Any, state: Any) -> None:
    if type(node) is list:
        node.extend(state)
    elif type(node) is dict or type(node) is set:
        node.update(state)
    elif hasattr(node, "__setstate__"):
        node.__setstate__(state)  # no node has it but the stand-in of a class that is missing
    else:
        attributes, slots = state
        if attributes:
            node.__dict__.update(attributes)
        for name, value in slots.items():
            setattr(node, name, value)


def empty(kind: type) -> Any:
    """A node without anything in it."""
    make: Any = kind.__new__
    return make(kind)


def _state(obj: Any, kind: type, family: Family) -> Any:
    """A copy of what is in a node; None for what is no node."""
    if kind is list or kind is set:
        return list(obj)
    if kind is dict:
        return list(obj.items())
    if family(kind) is not None or kind in copyreg.dispatch_table:
        return None
    names = ("__reduce__", "__reduce_ex__", "__getstate__", "__new__", "__setstate__")
    if any(getattr(kind, name, None) is not getattr(object, name, None) for name in names):
        return None
    reduced = obj.__reduce_ex__(4)
    if reduced[0] is not copyreg.__newobj__ or reduced[1] != (kind,) or any(reduced[3:]):  # type: ignore[attr-defined]
        return None
    state = reduced[2]
    attributes, slots = state if type(state) is tuple else (state, {})
    return (dict(attributes or {}), slots or {})


def _inside(state: Any) -> list[Any]:
    if type(state) is list:
        return state
    return [*state[0].values(), *state[1].values()]
