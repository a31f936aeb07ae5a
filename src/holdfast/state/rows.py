"""Rows: lists of flat dicts, such as messages, which are known again without a look at each.

A conversation grows at its end. That all before the end is as it was is found out here in a few
steps, each of which goes through everything at once: the very same dicts hold the very same keys
and values in the same order. Nothing is concluded from equality, because 1 equals True.
"""

from __future__ import annotations

from collections.abc import ValuesView
from itertools import chain
from operator import is_
from typing import Any, NamedTuple

FEWEST = 4  # dicts; of fewer each is looked at

# The dicts hold values of any type; hence the Any in this module.


class Rows(NamedTuple):
    """Dicts at the beginning of a list, each of nothing but texts and numbers, and what they
    became: copies of them, which keep what was in them from being replaced unnoticed."""

    dicts: list[dict[Any, Any]]
    views: list[ValuesView[Any]]  # of the dicts: what is in them now
    packed: list[dict[str, Any]]
    lengths: list[int]
    keys: list[str]
    values: list[Any]

    @classmethod
    def of(cls, dicts: list[dict[Any, Any]], packed: list[dict[str, Any]]) -> Rows:
        return cls(
            dicts,
            [*map(dict.values, dicts)],
            packed,
            [*map(len, packed)],
            [*chain.from_iterable(packed)],
            [*chain.from_iterable(map(dict.values, packed))],
        )

    def begin(self, members: list[Any]) -> bool:
        """Whether a list begins with them, unchanged."""
        dicts = self.dicts
        return (
            len(dicts) <= len(members)
            and all(map(is_, dicts, members))
            and [*map(len, dicts)] == self.lengths
            and all(map(is_, chain.from_iterable(dicts), self.keys))
            and all(map(is_, chain.from_iterable(self.views), self.values))
        )

    def longer(self, dicts: list[dict[Any, Any]], packed: list[dict[str, Any]]) -> Rows:
        """These and some more behind them."""
        more = Rows.of(dicts, packed)
        return Rows(
            self.dicts + more.dicts,
            self.views + more.views,
            self.packed + more.packed,
            self.lengths + more.lengths,
            self.keys + more.keys,
            self.values + more.values,
        )
