"""Small values of builtin data: pickled at once, since nothing in them can fail."""

from __future__ import annotations

ROOM = 200  # items that are looked at

_ATOMS = frozenset({int, float, complex, bool, type(None), str, bytes})
_CONTAINERS = frozenset({list, dict, tuple, set, frozenset})


def containers(value: object) -> dict[int, object] | None:
    """The containers in a value by id; None when it holds anything else, or is not small."""
    found: dict[int, object] = {}
    if type(value) in _ATOMS:
        return found
    waiting = [value]
    room = ROOM
    while waiting:
        obj = waiting.pop()
        kind = type(obj)
        if kind in _ATOMS:
            continue
        if kind not in _CONTAINERS:
            return None
        if id(obj) in found:
            continue
        room -= len(obj)  # type: ignore[arg-type]  # one of the containers
        if room < 0:
            return None
        found[id(obj)] = obj
        if kind is dict:
            waiting += obj  # type: ignore[arg-type]
            waiting += obj.values()  # type: ignore[attr-defined]
        else:
            waiting += obj  # type: ignore[arg-type]
    return found
