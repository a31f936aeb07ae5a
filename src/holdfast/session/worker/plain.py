"""Small values of builtin data: pickled at once, since nothing in them can fail."""

from __future__ import annotations

ROOM = 200  # items that are looked at

# Types by identity: a metaclass may make its classes unhashable, or equal to anything.
NUMBERS = frozenset(map(id, (int, float, complex, bool, type(None))))  # nobody's secret
_ATOMS = NUMBERS | {id(str), id(bytes)}
_FEW = 50  # items of a tuple that are worth a look
_SHORT = 16 << 10  # characters or bytes of a text that is small
_CONTAINERS = frozenset(map(id, (list, dict, tuple, set, frozenset)))
PLAIN = _ATOMS | _CONTAINERS  # ids of the types that plain data can be of


def containers(value: object) -> dict[int, object] | None:
    """The containers in a value by id; None when it holds anything else, or is not small."""
    found: dict[int, object] = {}
    if id(type(value)) in _ATOMS:
        return found
    waiting = [value]
    room = ROOM
    while waiting:
        obj = waiting.pop()
        kind = type(obj)
        if id(kind) in _ATOMS:
            continue
        if id(kind) not in _CONTAINERS:
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


def fixed(value: object, depth: int = 8) -> bool:
    """Whether neither the value nor anything in it can ever change: told for small ones."""
    kind = type(value)
    if kind is tuple and len(value) <= _FEW:  # type: ignore[arg-type]  # a tuple
        return depth > 0 and all(fixed(each, depth - 1) for each in value)  # type: ignore[attr-defined]
    if kind is str or kind is bytes:
        return len(value) <= _SHORT  # type: ignore[arg-type]  # one of these
    return id(kind) in _ATOMS
