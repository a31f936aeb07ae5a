"""Dicts and lists of classes with ways of their own to set and to append.

Pickle would go these ways again for every item, and so do twice what was done once. Here what
they hold is put in as it was.
"""

from __future__ import annotations

import copyreg
from typing import Any

from holdfast.session.worker import rebuild
from holdfast.session.worker.kinds.contract import Reduction

# `Any` below: items and states of every type.


def set_filled(made: Any, state: tuple[list[Any], list[Any], Any]) -> None:
    """Put items in, then set the attributes."""
    items, entries, rest = state
    if items:
        list.extend(made, items)
    if entries:
        dict.update(made, entries)
    if rest is None:
        return
    if hasattr(made, "__setstate__"):
        made.__setstate__(rest)
        return
    attributes, slots = rest if type(rest) is tuple else (rest, None)
    for name, value in {**(attributes or {}), **(slots or {})}.items():
        setattr(made, name, value)


def as_it_is(kind: type, reduced: Any) -> Reduction:
    """The same reduction, but for how items come in."""
    if _asks_itself(kind, reduced):
        return (*reduced[:3], None, None, rebuild.set_state)
    if type(reduced) is not tuple or len(reduced) < 4 or reduced[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
        return reduced
    own = (issubclass(kind, dict) and kind.__setitem__ is not dict.__setitem__) or (
        issubclass(kind, list)
        and (kind.append is not list.append or kind.extend is not list.extend)
    )
    if not own:
        return reduced
    make, arguments, state, items, entries = (*reduced, None)[:5]
    return make, arguments, (list(items or ()), list(entries or ()), state), None, None, set_filled


def _asks_itself(kind: type, reduced: Any) -> bool:
    """Whether an object without attributes would be asked for a `__setstate__` that it has not, by
    its own `__getattr__`: many of those look into an attribute that is not there yet."""
    return (
        type(reduced) is tuple
        and reduced[0] is copyreg.__newobj__  # type: ignore[attr-defined]
        and len(reduced) > 2
        and type(reduced[2]) is dict
        and not any(reduced[3:])
        and hasattr(kind, "__getattr__")
        and not hasattr(kind, "__setstate__")
    )
