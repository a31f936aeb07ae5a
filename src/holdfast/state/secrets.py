"""Secrets: what a state leaves out when it is saved, and where it comes from when it is loaded.

They stay in the memory of the process that has them, each with the checkpoint that it was left out
of: another checkpoint may have another secret in that place. Anybody else gives them anew: by name,
or in the environment as `HOLDFAST_SECRET_<NAME>`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.model.errors import BadInput
from holdfast.model.report import Item, Report
from holdfast.model.secrets import (
    find,
    from_environment,
    how_to_give,
    typed,
    variable_of,
)

_MANY = 1000  # checkpoints whose secrets are remembered
_STEP = re.compile(r"\[(\d+)\]|([^.\[]+)")


class Left(NamedTuple):
    """What was left out of one document, by the way to each, and the rest of it."""

    found: Mapping[str, str | bytes]
    # JSON, as in `Document`.
    state: dict[str, Any]


class Secrets:
    """The secrets that one manager knows, and what became of those it was asked for."""

    def __init__(self, given: Mapping[str, str | bytes] | None = None) -> None:
        """`given` are secrets by their name, or by the way to them. Raises BadInput."""
        self._given = _checked(given or {})
        self._taken: dict[int, Left] = {}  # by the id of a state that is no checkpoint yet
        self._kept: dict[str, Left] = {}  # by checkpoint
        self._last = Left({}, {})
        self._items: dict[str, Item] = {}
        self._names: set[str] = set()

    def copy(self) -> Secrets:
        """The same secrets, for a fork: what either learns from now on is its own."""
        other = Secrets(self._given)
        other._taken, other._kept = dict(self._taken), dict(self._kept)
        other._last = self._last
        other._names = set(self._names)
        return other

    @property
    def given(self) -> frozenset[str]:
        """The names of those that were given, and not kept in memory."""
        return frozenset(self._names)

    def left_out(self, found: Mapping[str, str | bytes], state: dict[str, Any]) -> Report:
        """Remember what was left out of a state, and say so."""
        if found:
            self._last = self._taken[id(state)] = Left(dict(found), state)
            _cut(self._taken)
        return Report.of(
            Item(name=way, outcome="skipped", reason=_reason(way), secrets=(_name(way),))
            for way in found
        )

    def belong(self, state: dict[str, Any], checkpoint: str) -> None:
        """That state is this checkpoint now."""
        left = self._taken.pop(id(state), None)
        if left is not None and left.state is state:
            self._kept[checkpoint] = left
            _cut(self._kept)

    def of(
        self, state: dict[str, Any], checkpoint: str | None
    ) -> Callable[[str, bool], str | bytes | None]:
        """What gives the secrets of a state, by the way to each and whether it is a byte string;
        None for one that nobody knows."""
        taken = self._taken.get(id(state))
        own = taken if taken is not None and taken.state is state else None
        if own is None and checkpoint is not None:
            own = self._kept.get(checkpoint)
        environ = from_environment(os.environ)

        def give(way: str, binary: bool) -> str | bytes | None:
            name = _name(way)
            for source, known in (
                ("kept in memory", own.found.get(way) if own else self._as_last(way, state)),
                ("given", self._given.get(way)),
                ("given", find(self._given, name)),
                (f"from {variable_of(name)}", find(environ, name)),
            ):
                if known is not None and (binary or _is_text(known)):
                    if source != "kept in memory":
                        self._names.add(name)
                    reason = f"a secret, {source}"
                    self._items[way] = Item(name=way, outcome="rebuilt", reason=reason)
                    return typed(known, binary)
            self._items[way] = Item(
                name=way, outcome="skipped", reason=_reason(way), secrets=(name,)
            )
            return None

        return give

    def report(self) -> Report:
        """What became of the secrets of the state that was loaded last."""
        items, self._items = self._items, {}
        return Report.of(items.values())

    def _as_last(self, way: str, state: dict[str, Any]) -> str | bytes | None:
        """What stood there last, if it is the same place: a member of a list is told by nothing but
        its number, so the list has to be the same."""
        known = self._last.found.get(way)
        if known is None or "[" not in way:
            return known
        around = _list_around(self._last.state, way)
        return known if around is not None and around == _list_around(state, way) else None


def _list_around(state: Any, way: str) -> Any:
    """The outermost list on a way; None when it cannot be found."""
    found = state
    for number, key in _STEP.findall(way):
        if number:
            return found
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return None


def _is_text(value: str | bytes) -> bool:
    try:
        typed(value, False)
    except UnicodeDecodeError:
        return False
    return True


def _cut(remembered: dict[Any, Left]) -> None:
    while len(remembered) > _MANY:
        del remembered[next(iter(remembered))]


def unknown(ways: Iterable[str]) -> Report:
    """The report of a checkpoint that somebody else made."""
    return Report.of(Item(name=way, outcome="skipped", reason=_reason(way)) for way in ways)


def _checked(given: object) -> dict[str, str | bytes]:
    # The texts themselves are told to nobody, also not in an error.
    if not isinstance(given, Mapping):
        raise BadInput(f"secrets are a mapping from names to texts, not {type(given).__name__}")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str | bytes):
            raise BadInput(f"secrets[{name!r}] is {type(value).__name__}, not a text")
    return dict(given)


def _name(way: str) -> str:
    """`config.api_key` is called `api_key`."""
    return re.sub(r"\[\d+\]", "", way).rpartition(".")[2]


def _reason(way: str) -> str:
    return how_to_give(_name(way))
