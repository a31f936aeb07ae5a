"""Stand-ins for what a missing library would have made: they keep what it takes to revive.

When such an object is captured again, its record names the library's class again, with the
arguments and the state that it had; restored where the library is, it is what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.session.worker import rebuild
from holdfast.session.worker.placeholder import Placeholder

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Reduction

# `Any` below: arguments and states are whatever the library made them.


class Missing(Placeholder):
    """An object of a class that is not there, with everything it was to be made from."""

    __slots__ = (
        "_holdfast_entries", "_holdfast_items", "_holdfast_making", "_holdfast_setter",
        "_holdfast_state",
    )  # fmt: skip


class Reading:
    """Records are being read: only then are stand-ins filled as what they stand for would be."""

    depth = 0

    def __enter__(self) -> None:
        Reading.depth += 1

    def __exit__(self, *error: object) -> None:
        Reading.depth -= 1


def again(made: Missing) -> Reduction:
    """How to make it, where its class is there."""
    state, items, entries = (_get(made, f"_holdfast_{n}") for n in ("state", "items", "entries"))
    arguments = _get(made, "_holdfast_making")
    return (
        rebuild.revive,
        arguments,
        state,
        iter(items) if items else None,
        (iter(entries) if entries else None),
        _get(made, "_holdfast_setter"),
    )


def named(cls: type) -> tuple[str, str, str]:
    """The module and the name that a stand-in's class stands for, and why it is missing."""
    found: tuple[str, str, str] = cls.__dict__["_holdfast_named"]
    return found


def missing_class(module: str, name: str, reason: str, shown: str = "") -> Any:
    """A class for the unpickler to build stand-ins with, whatever it is given. `shown` is what the
    library would have made, where a builder of ours makes it."""

    def new(cls: type, *args: object, **options: object) -> Missing:
        made: Missing = object.__new__(cls)
        within = "" if module[:1] in ("", "@") else f"{module}."  # "@": a label of the session's
        Placeholder.__init__(made, shown or within + name, reason)
        _set(made, "_holdfast_making", (module, name, False, args, options))
        _set(made, "_holdfast_state", None)
        _set(made, "_holdfast_setter", None)
        _set(made, "_holdfast_items", [])
        _set(made, "_holdfast_entries", [])
        return made

    def init(self: Missing, *args: object, **options: object) -> None:
        # pickle makes most objects without `__init__`; this one was called.
        _set(self, "_holdfast_making", (module, name, True, args, options))

    def set_state(self: Missing, state: object) -> None:
        _set(self, "_holdfast_state", state)

    def append(self: Missing, item: object) -> None:
        _filling(self, "_holdfast_items").append(item)

    def extend(self: Missing, items: list[object]) -> None:
        _filling(self, "_holdfast_items").extend(items)

    def set_item(self: Missing, key: object, value: object) -> None:
        _filling(self, "_holdfast_entries").append((key, value))

    body = {
        "__slots__": (),
        "__new__": new,
        "__init__": init,
        "__setstate__": set_state,
        "__setitem__": set_item,
        "append": append,
        "extend": extend,
        "add": append,
        "_holdfast_named": (module, name, reason),
    }
    return type("Missing", (Missing,), body)


def also_given(made: Missing, **options: object) -> None:
    """Say more of what a stand-in's builder is to be given."""
    *making, before = _get(made, "_holdfast_making")
    _set(made, "_holdfast_making", (*making, {**before, **options}))


def set_later(made: Missing, setter: Callable[[Any, Any], None], state: object) -> None:
    """Keep what one of our setters is to do, until the library is there."""
    _set(made, "_holdfast_setter", setter)
    _set(made, "_holdfast_state", state)


def missing_module(name: str, reason: str) -> Any:
    """Stands where a module would, inside of a value."""
    made = object.__new__(missing_class("", f"module {name}", reason))
    Placeholder.__init__(made, f"module {name}", reason)
    _set(made, "_holdfast_making", (name, "", False, (), {}))
    _set(made, "_holdfast_state", None)
    _set(made, "_holdfast_setter", None)
    _set(made, "_holdfast_items", [])
    _set(made, "_holdfast_entries", [])
    return made


def _set(made: Missing, name: str, value: object) -> None:
    object.__setattr__(made, name, value)


def _filling(made: Missing, name: str) -> Any:
    if not Reading.depth:
        made._refuse()  # somebody uses it
    return _get(made, name)


def _get(made: Missing, name: str) -> Any:
    return object.__getattribute__(made, name)
