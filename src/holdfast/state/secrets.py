"""Secrets: what a state leaves out when it is saved, and where it comes from when it is loaded.

They stay in the memory of the process that has them. Anybody else gives them anew: by name, or in
the environment as `HOLDFAST_SECRET_<NAME>`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from holdfast.model.errors import BadInput
from holdfast.model.report import Item, Report

_VARIABLE = "HOLDFAST_SECRET_"


class Secrets:
    """The secrets that one manager knows, and what became of those it was asked for."""

    def __init__(self, given: Mapping[str, str | bytes] | None = None) -> None:
        """`given` are secrets by their name, or by the way to them. Raises BadInput."""
        self._given = _checked(given or {})
        self._seen: dict[str, str | bytes] = {}  # by the way to each
        self._items: dict[str, Item] = {}

    def left_out(self, found: Mapping[str, str | bytes]) -> Report:
        """Remember what was left out, and say so."""
        self._seen.update(found)
        return Report.of(Item(name=way, outcome="skipped", reason=_reason(way)) for way in found)

    def __call__(self, way: str, binary: bool) -> str | bytes | None:
        """The secret that stood there, or None when nobody knows it."""
        name = _name(way)
        variable = _variable(name)
        for source, known in (
            ("kept in memory", self._seen.get(way)),
            ("given", self._given.get(way)),
            ("given", self._given.get(name)),
            (f"from {variable}", os.environ.get(variable)),
        ):
            if known is not None:
                self._items[way] = Item(name=way, outcome="rebuilt", reason=f"a secret, {source}")
                return _as(known, binary)
        self._items[way] = Item(name=way, outcome="skipped", reason=_reason(way))
        return None

    def report(self) -> Report:
        """What became of the secrets of the state that was loaded last."""
        items, self._items = self._items, {}
        return Report.of(items.values())


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


def _variable(name: str) -> str:
    return _VARIABLE + re.sub(r"\W", "_", name, flags=re.ASCII).upper()


def _reason(way: str) -> str:
    name = _name(way)
    return f"a secret is not saved; secrets={{{name!r}: ...}} or {_variable(name)} brings it back"


def _as(value: str | bytes, binary: bool) -> str | bytes:
    if binary:
        return value.encode() if isinstance(value, str) else value
    return value.decode() if isinstance(value, bytes) else value
